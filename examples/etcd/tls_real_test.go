package main

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/certs"
	"github.com/thermostat-go/thermostat/examples/etcd/load"
	"github.com/thermostat-go/thermostat/informer"
)

// clientTLS follows the Secret of clients until the test ends, as a client does that reads its files again.
func (w *real) clientTLS() func() *tls.Config {
	secrets, err := informer.NewResource[*corev1.Secret](w.cluster.Config(), secrets, informer.ResourceOptions{})
	require.NoError(w, err)
	var now atomic.Pointer[tls.Config]
	read := func(version string) string {
		secret, err := secrets.In(w.namespace).Get(context.Background(), "a-client", metav1.GetOptions{})
		if err != nil || secret.ResourceVersion == version {
			return version
		}
		if config, err := certs.Config(secret.Data); err == nil {
			now.Store(config)
		}
		return secret.ResourceVersion
	}
	version := read("")
	ctx, stop := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			version = read(version)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	w.Cleanup(func() { stop(); <-ended })
	return now.Load
}

// TestRealTLS renews the certificates of real members, and replaces their CA, while clients read and write.
func TestRealTLS(t *testing.T) {
	t.Parallel()
	versions := []string{"3.6.16"}
	if soak {
		versions = []string{"3.5.35", "3.6.16", "3.7.3"}
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) { newReal(t, version).rotateUnderLoad(v1.Version(version)) })
	}
}

func (w *real) rotateUnderLoad(version v1.Version) {
	w.scheme = "https://"
	_, err := w.clusters.In(w.namespace).Create(w.Context(), &v1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: v1.EtcdClusterSpec{Size: 3, Version: version, Image: "etcd",
			TLS: &v1.TLS{CASeconds: 3600, CertificateSeconds: 45, ClientSeconds: 5}}}, metav1.CreateOptions{})
	require.NoError(w, err)
	first := w.settles("three members with TLS, " + string(version)).Status.TLS.CertificatesEnd
	config := w.clientTLS()
	w.refused("without TLS", "http://", nil)
	w.refused("without a certificate", "https://", &tls.Config{RootCAs: config().RootCAs})

	l := w.loadWith(load.Options{TLS: config})
	l.goesOn(100)
	said := func(what string) {
		lap := l.Lap()
		w.Logf("%s: %d writes, %d failed, longest gap %.2f s; %d reads, %d failed", what, lap.Writes.Done,
			lap.Writes.Failed, lap.Writes.Gap.Seconds(), lap.Reads.Done, lap.Reads.Failed)
	}
	said("before")
	pods := w.podUIDs()
	w.tls("new certificates", func(now *v1.TLSStatus) bool { return now.CertificatesEnd.After(first.Time) })
	require.Equal(w, pods, w.podUIDs(), "no pod was restarted for them")
	said("new certificates")

	w.patch(`{"spec":{"tls":{"generation":2}}}`)
	w.tls("a new CA", func(now *v1.TLSStatus) bool { return now.CA == 2 && now.Step == string(certs.Steady) })
	w.settles("all members trust the new CA only")
	said("a new CA")
	for name, uid := range w.podUIDs() {
		require.NotEqual(w, pods[name], uid, "%s was restarted", name)
	}
	backups := w.realBackups()
	_, err = backups.Create(w.Context(), newBackup("b", "a", 0), metav1.CreateOptions{})
	require.NoError(w, err)
	w.isComplete(backups, "b")
	l.check()
}

// tls waits until the status of the certificates is as asked for.
func (w *real) tls(what string, is func(*v1.TLSStatus) bool) {
	begin := time.Now()
	require.Eventually(w, func() bool {
		now, err := w.clusters.In(w.namespace).Get(w.Context(), "a", metav1.GetOptions{})
		return err == nil && is(now.Status.TLS)
	}, 3*time.Minute, 100*time.Millisecond, what)
	w.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
}

// podUIDs are those of the members' pods, by name.
func (w *real) podUIDs() map[string]types.UID {
	list, err := w.pods.In(w.namespace).List(w.Context(), metav1.ListOptions{LabelSelector: v1.ClusterLabel})
	require.NoError(w, err)
	uids := map[string]types.UID{}
	for _, pod := range list.Items {
		uids[pod.Name] = pod.UID
	}
	return uids
}

// refused has a client that no member may let in.
func (w *real) refused(what, scheme string, config *tls.Config) {
	was := w.scheme
	w.scheme = scheme
	c, err := clientv3.New(clientv3.Config{Endpoints: w.endpoints(), TLS: config, Logger: zap.NewNop()})
	w.scheme = was
	require.NoError(w, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
	defer cancel()
	_, err = c.Get(ctx, "key")
	require.Error(w, err, what)
}
