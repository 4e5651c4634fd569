package cluster_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// promises are what a server does for controllers beyond what every server does. The table in the package's
// documentation is this one.
type promises struct {
	streamsLists    bool // a watch that asks for sendInitialEvents begins with the objects that exist
	sendsBookmarks  bool // a watch that sees nothing of what happens elsewhere gets a bookmark before it ends
	cachedReads     bool // a list without a version is consistent, and etcd is not asked for the objects
	selectsByShards bool // a list with a shardSelector has only the objects of the shard; else it has all of them
}

var promisesOf = map[string]promises{
	"1.33": {sendsBookmarks: true, cachedReads: true},
	"1.34": {streamsLists: true, sendsBookmarks: true, cachedReads: true},
	"1.35": {streamsLists: true, sendsBookmarks: true, cachedReads: true},
	"1.36": {streamsLists: true, sendsBookmarks: true, cachedReads: true},
	"1.37": {streamsLists: true, sendsBookmarks: true, cachedReads: true},
}

func TestPromisesOfTheVersion(t *testing.T) {
	c := cluster.Shared(t)
	info, err := c.Client().Discovery().ServerVersion()
	require.NoError(t, err)
	version := info.Major + "." + info.Minor
	want, known := promisesOf[version]
	require.True(t, known, "no table for %s", version)

	namespace := c.Namespace(t)
	for i := range 20 { // that all are in one half of the UIDs happens once in 500,000 runs
		_, err := c.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("a", i)}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	have := promises{
		streamsLists: streamsLists(t, c, namespace), sendsBookmarks: sendsBookmarks(t, c, namespace),
		cachedReads: cachedReads(t, c, namespace), selectsByShards: selectsByShards(t, c, namespace),
	}
	t.Logf("%s: %+v", info.GitVersion, have)
	require.Equal(t, want, have, version)
}

func streamsLists(t *testing.T, c *cluster.Cluster, namespace string) bool {
	yes := true
	w, err := c.Client().CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if apierrors.IsInvalid(err) {
		return false
	}
	require.NoError(t, err)
	defer w.Stop()
	for objects := 0; ; objects++ {
		e, open := <-w.ResultChan()
		require.True(t, open)
		if e.Type == watch.Bookmark {
			require.Contains(t, e.Object.(*corev1.ConfigMap).Annotations, metav1.InitialEventsAnnotationKey)
			require.GreaterOrEqual(t, objects, 20)
			return true
		}
	}
}

// sendsBookmarks watches up to ten times: a server that gets no processor in the last two seconds of a watch, in which
// it has something to say, says nothing.
func sendsBookmarks(t *testing.T, c *cluster.Cluster, namespace string) bool {
	for range 10 {
		if getsABookmark(t, c, namespace) {
			return true
		}
	}
	return false
}

func getsABookmark(t *testing.T, c *cluster.Cluster, namespace string) bool {
	seconds := int64(5)
	list, err := c.Client().CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	w, err := c.Client().CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{
		AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: list.ResourceVersion,
	})
	require.NoError(t, err)
	defer w.Stop()
	_, err = c.Client().CoreV1().ConfigMaps(c.Namespace(t)).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	require.NoError(t, err, "without anything new there is nothing to say")
	for e := range w.ResultChan() {
		if e.Type == watch.Bookmark {
			return true
		}
	}
	return false
}

// cachedReads lists until ten lists have come from the cache. A server that is late asks etcd for one or the other.
func cachedReads(t *testing.T, c *cluster.Cluster, namespace string) bool {
	before := consistentReads(t, c)
	for range 100 {
		list, err := c.Client().CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(list.Items), 20)
		if consistentReads(t, c) >= before+10 {
			return true
		}
	}
	return false
}

// 1.33 has no group and the path in etcd for a name.
var consistentRead = regexp.MustCompile(`(?m)^apiserver_watch_cache_consistent_read_total` +
	`\{fallback="false",(?:group="",)?resource="/?configmaps",success="true"\} (\d+)$`)

// consistentReads returns how many consistent lists of ConfigMaps the server has answered from its cache.
func consistentReads(t *testing.T, c *cluster.Cluster) int {
	metrics, err := c.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	sum := 0
	for _, match := range consistentRead.FindAllSubmatch(metrics, -1) {
		n, err := strconv.Atoi(string(match[1]))
		require.NoError(t, err)
		sum += n
	}
	return sum
}

func selectsByShards(t *testing.T, c *cluster.Cluster, namespace string) bool {
	configMaps := c.Client().CoreV1().ConfigMaps(namespace)
	all, err := configMaps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var half corev1.ConfigMapList
	require.NoError(t, c.Client().CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").
		Param("shardSelector", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')").
		Do(t.Context()).Into(&half))
	return len(half.Items) < len(all.Items)
}
