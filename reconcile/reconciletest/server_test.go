package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// start makes a server and a typed client.
func start(t *testing.T) (*Server, kubernetes.Interface) {
	t.Helper()
	s := NewServer(t, Options{Resources: customResources()})
	return s, clientset(t, s.Config())
}

// failing is a test that may fail: it keeps what it was told.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	goruntime.Goexit()
}

// refusal returns what NewServer says of options that are wrong.
func refusal(t *testing.T, o Options) string {
	t.Helper()
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() { defer close(done); NewServer(f, o) }()
	<-done
	require.NotEmpty(t, f.message, "the options were accepted")
	return f.message
}

// failure returns what a method of the server tells the test that it fails.
func failure(t *testing.T, s *Server, fn func()) string {
	t.Helper()
	f := &failing{TB: s.t}
	s.t = f
	defer func() { s.t = f.TB }()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	<-done
	require.NotEmpty(t, f.message, "the test has not failed")
	return f.message
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clients
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": "1"}}
}

// create is for objects that a test takes for granted.
func create(t *testing.T, clients kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	o, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), configMap(name), metav1.CreateOptions{})
	require.NoError(t, err)
	return o
}

func from(version string) metav1.ListOptions { return metav1.ListOptions{ResourceVersion: version} }

// next returns the next event of a watch, which has to be there.
func next(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	synctest.Wait()
	select {
	case e, ok := <-w.ResultChan():
		require.True(t, ok, "the watch has ended")
		return e
	default:
		require.FailNow(t, "there is no event")
		return watch.Event{}
	}
}

func nothing(t *testing.T, w watch.Interface) {
	t.Helper()
	synctest.Wait()
	select {
	case e, ok := <-w.ResultChan():
		require.False(t, ok, "there is an event: %v", e)
		require.FailNow(t, "the watch has ended")
	default:
	}
}

func ended(t *testing.T, w watch.Interface) {
	t.Helper()
	synctest.Wait()
	_, ok := <-w.ResultChan()
	require.False(t, ok, "there is an event")
}

func nameOf(e watch.Event) string { return e.Object.(metav1.Object).GetName() }

func TestEveryKindOfClientSeesTheSame(t *testing.T) {
	for _, encoding := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(encoding, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := start(t)
				config := s.Config()
				config.ContentType = encoding
				clients := clientset(t, config)
				trees, err := dynamic.NewForConfig(config)
				require.NoError(t, err)
				metadatas, err := metadata.NewForConfig(config)
				require.NoError(t, err)
				deployments := appsv1.SchemeGroupVersion.WithResource("deployments")

				w, err := clients.AppsV1().Deployments("default").Watch(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				defer w.Stop()
				w2, err := metadatas.Resource(deployments).Watch(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				defer w2.Stop()
				made, err := clients.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: map[string]string{"l": "m"}},
					Spec: appsv1.DeploymentSpec{
						Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
						Template: corev1.PodTemplateSpec{
							ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
							Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
						},
					},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				require.Equal(t, int32(1), *made.Spec.Replicas)

				tree, err := trees.Resource(deployments).Namespace("default").Get(t.Context(), "d", metav1.GetOptions{})
				require.NoError(t, err)
				partial, err := metadatas.Resource(deployments).Namespace("default").Get(t.Context(), "d",
					metav1.GetOptions{})
				require.NoError(t, err)
				list, err := clients.AppsV1().Deployments("").List(t.Context(),
					metav1.ListOptions{LabelSelector: "l=m"})
				require.NoError(t, err)
				require.Len(t, list.Items, 1)
				partials, err := metadatas.Resource(deployments).List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				require.Len(t, partials.Items, 1)
				event, event2 := next(t, w), next(t, w2)
				require.Equal(t, watch.Added, event.Type)
				for _, o := range []metav1.Object{tree, partial, &list.Items[0], &partials.Items[0],
					event.Object.(metav1.Object), event2.Object.(metav1.Object)} {
					require.Equal(t, made.ResourceVersion, o.GetResourceVersion(), "%T", o)
					require.Equal(t, made.UID, o.GetUID())
					require.Equal(t, made.Labels, o.GetLabels())
				}
				require.NoError(t, clients.AppsV1().Deployments("default").Delete(t.Context(), "d",
					*metav1.NewPreconditionDeleteOptions(string(made.UID))))
				require.Equal(t, watch.Deleted, next(t, w).Type)
				_, err = clients.AppsV1().Deployments("default").Get(t.Context(), "d", metav1.GetOptions{})
				require.True(t, apierrors.IsNotFound(err), "%v", err)
			})
		})
	}
}

func TestAServerOfAProgram(t *testing.T) {
	_, err := Start(Options{CRDs: []string{"nowhere"}})
	require.ErrorContains(t, err, "nowhere")
	s, err := Start(Options{Namespaces: []string{"default", "kube-system"}})
	require.NoError(t, err)
	clients := clientset(t, s.Link().Listen())
	create(t, clients, "a")
	w, err := clients.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, "a", nameOf(<-w.ResultChan()))
	require.PanicsWithValue(t, "reconciletest: restore to version 1: the server has had versions from 1000 to 1003",
		func() { s.Restore(1) })
	s.Close()
	_, open := <-w.ResultChan()
	require.False(t, open, "the watch ends with the server")
	_, err = clients.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	s.Close() // ends nothing twice
}

func TestWhatIsNotModelledIsRefused(t *testing.T) {
	s, clients := start(t)
	create(t, clients, "a")
	refused := func(err error) {
		t.Helper()
		require.Equal(t, ReasonNotModelled, apierrors.ReasonForError(err), "%v", err)
		require.ErrorContains(t, err, "not modelled")
	}
	_, err := clients.AppsV1().DaemonSets("default").List(t.Context(), metav1.ListOptions{})
	refused(err)
	// there is one version of them
	_, err = clients.AutoscalingV1().HorizontalPodAutoscalers("default").List(t.Context(), metav1.ListOptions{})
	refused(err)
	rest := clients.CoreV1().RESTClient()
	refused(rest.Get().Namespace("default").Resource("pods").Name("a").SubResource("log").Do(t.Context()).Error())
	refused(rest.Get().AbsPath("/metrics").Do(t.Context()).Error())
	refused(rest.Get().AbsPath("/api/v1/watch/configmaps").Do(t.Context()).Error())
	refused(rest.Get().Resource("configmaps").Namespace("default").Param("shardSelector", "x").Do(t.Context()).Error())
	refused(rest.Get().Resource("configmaps").Namespace("default").SetHeader("Accept",
		"application/json;as=Table;g=meta.k8s.io;v=v1").Do(t.Context()).Error())
	require.Len(t, Objects[*corev1.ConfigMap](s, "configmaps"), 1)
}

// TestFieldsThatAreNotModelledAreRefused writes what a real server would check, default or bring to life.
func TestFieldsThatAreNotModelledAreRefused(t *testing.T) {
	s := NewServer(t, Options{})
	client, err := rest.HTTPClientFor(s.Config())
	require.NoError(t, err)
	post := func(resource, name, fields string) (code int, answer string) {
		path := strings.ReplaceAll(shorthand[resource].path, "NS", "default")
		resp, err := client.Post(s.Config().Host+path, "application/json",
			strings.NewReader(bodyOf(resource, name, fields)))
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	with := func(template, old, new string) string { return strings.Replace(template, old, new, 1) }
	deployment := with(pausedWorkload, `"paused":true`, `"paused":true,MORE`)
	set := `"spec":{MORE,` + specOf(0)[1:]
	for _, c := range []struct{ resource, fields, what string }{
		{"pods", with(pod(""), `"schedulerName"`, `"volumes":[{"name":"v","hostPath":{"path":"/"}}],"schedulerName"`),
			"spec.volumes[].hostPath.path"},
		{"pods", with(pod(""), `"schedulerName"`, `"tolerations":[{}],"schedulerName"`), "spec.tolerations[]"},
		{"pods", with(pod(""), `"schedulerName"`, `"hostNetwork":true,"schedulerName"`), "spec.hostNetwork"},
		{"pods", with(pod(""), `"schedulerName"`,
			`"initContainers":[{"name":"i","image":"i","restartPolicy":"Always"}],"schedulerName"`),
			"spec.initContainers[].restartPolicy"},
		{"pods", with(pod(""), `"image"`, `"resources":{"limits":{"example.com/gpu":"1"}},"image"`),
			"spec.containers[].resources.limits.example.com/gpu"},
		{"pods", with(pod(""), `"image"`, `"resources":{"limits":{"memory":"0.5"}},"image"`),
			"the value of spec.containers[].resources.limits.memory"},
		{"pods", with(pod(""), `"image"`, `"env":[{"name":"A"},{"name":"A"}],"image"`),
			"an environment variable that is there twice"},
		{"pods", with(pod(""), `"image"`, `"ports":[{"containerPort":80},{"containerPort":80}],"image"`),
			"a port that is there twice"},
		{"pods", with(pod(""), `"image"`, `"imagePullPolicy":"Sometimes","image"`),
			"the value of spec.containers[].imagePullPolicy"},
		{"pods", with(pod(""), `"image"`, `"ports":[{"containerPort":0}],"image"`),
			"the value of spec.containers[].ports[].containerPort"},
		{"rs", with(workload(0), `"containers"`, `"restartPolicy":"Sometimes","containers"`),
			"the value of spec.template.spec.restartPolicy"},
		{"rs", with(workload(0), `"containers"`, `"nodeName":"n","containers"`), "spec.template.spec.nodeName"},
		{"rs", with(workload(0), `"labels"`, `"finalizers":["a/b"],"labels"`), "spec.template.metadata.finalizers[]"},
		{"deploy", with(deployment, "MORE", `"strategy":{"type":"Odd"}`), "the value of spec.strategy.type"},
		{"jobs", job(`"podFailurePolicy":{"rules":[{"action":"Ignore"}]}`), "spec.podFailurePolicy.rules[].action"},
		{"jobs", job(`"managedBy":"example.com/me"`), "spec.managedBy"},
		{"cj", with(cronJob(`"schedule":"* * * * *"`), `"containers"`, `"hostPID":true,"containers"`),
			"spec.jobTemplate.spec.template.spec.hostPID"},
		{"hpa", `"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[]"}},` + autoscaler(``),
			"the annotation autoscaling.alpha.kubernetes.io/metrics"},
		{"pvc", claim(`"dataSource":{"kind":"PersistentVolumeClaim","name":"x"}`), "spec.dataSource.kind"},
		{"pdb", `"spec":{"selector":{}}`, "an empty selector"},
		{"svc", `"spec":{"type":"Odd","ports":[{"port":1}]}`, "the value of spec.type"},
		{"svc", `"spec":{"ipFamilies":["IPv6"],"ports":[{"port":1}]}`, "the value of spec.ipFamilies[]"},
		{"svc", `"spec":{"clusterIP":"fd00::7","ports":[{"port":1}]}`, "the value of spec.clusterIP"},
		{"svc", `"spec":{"clusterIP":"None"}`, "a headless Service without a selector"},
		{"sts", with(set, "MORE", `"volumeClaimTemplates":[{"metadata":{"name":"v"}}]`),
			"spec.volumeClaimTemplates[].apiVersion"},
		{"sts", with(set, "MORE", `"updateStrategy":{"type":"OnDelete"}`), "the value of spec.updateStrategy.type"},
		{"secrets", `"type":"kubernetes.io/tls"`, "the value of type"},
		{"events", `"involvedObject":{"namespace":"default"},"eventTime":"2020-01-01T00:00:00.000000Z"`, "eventTime"},
		{"leases", `"spec":{"strategy":"OldestEmulationVersion"}`, "spec.strategy"},
		{"sa", `"secrets":[{"name":"s"}]`, "secrets[].name"},
		{"nodes", `"spec":{"podCIDR":"10.0.0.0/24"}`, "spec.podCIDR"},
	} {
		code, answer := post(c.resource, "a", c.fields)
		require.Equal(t, http.StatusNotImplemented, code, "%s: %s", c.what, answer)
		require.Contains(t, answer, "not modelled: "+c.what+" of ")
		helps := "Options.Kinds"
		if c.resource == "svc" || c.resource == "events" { // models with builtin's kinds, too
			helps = "reconciletest/cluster"
		}
		require.Contains(t, answer, helps)
	}
	code, answer := post("sts", "a.b", with(set, "MORE,", ""))
	require.Equal(t, http.StatusNotImplemented, code, answer)
	code, answer = post("jobs", "", `"metadata":{"generateName":"a.b-"},`+job(``)) // of which a real server warns
	require.Equal(t, http.StatusNotImplemented, code, answer)
	code, answer = post("rs", "a", workload(0))
	require.Equal(t, http.StatusCreated, code, answer)
}

func TestCompactedVersionsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		maps := clients.CoreV1().ConfigMaps("default")
		first := create(t, clients, "a")
		create(t, clients, "b")
		page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
		require.NoError(t, err)
		open, err := maps.Watch(t.Context(), from(first.ResourceVersion))
		require.NoError(t, err)
		defer open.Stop()
		create(t, clients, "c")
		s.Compact()

		w, err := maps.Watch(t.Context(), from(first.ResourceVersion))
		require.NoError(t, err)
		defer w.Stop()
		e := next(t, w)
		require.Equal(t, watch.Error, e.Type)
		require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(e.Object)), "%v", e.Object)
		_, err = maps.List(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		require.True(t, apierrors.IsResourceExpired(err), "%v", err)
		_, err = maps.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.Continue})
		require.True(t, apierrors.IsResourceExpired(err), "%v", err)
		// The error brings a token for the rest as it is now.
		var status apierrors.APIStatus
		require.True(t, errors.As(err, &status))
		rest, err := maps.List(t.Context(), metav1.ListOptions{Limit: 5, Continue: status.Status().ListMeta.Continue})
		require.NoError(t, err)
		require.Len(t, rest.Items, 2)

		// A watch that was open misses nothing.
		require.Equal(t, "b", nameOf(next(t, open)))
		require.Equal(t, "c", nameOf(next(t, open)))
	})
}

func TestARestoreTurnsTheVersionBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		maps := clients.CoreV1().ConfigMaps("default")
		create(t, clients, "a")
		backup := s.Version()
		after := create(t, clients, "b")
		w, err := maps.Watch(t.Context(), from(after.ResourceVersion))
		require.NoError(t, err)
		defer w.Stop()
		s.Restore(backup)
		ended(t, w)
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
		require.Equal(t, strconv.FormatInt(backup, 10), list.ResourceVersion)
		_, err = maps.List(t.Context(), from(after.ResourceVersion))
		require.True(t, apierrors.IsTimeout(err), "%v", err)
		again := create(t, clients, "b")
		require.Equal(t, after.ResourceVersion, again.ResourceVersion)
		require.NotEqual(t, after.UID, again.UID)
		require.Contains(t, failure(t, s, func() { s.Restore(s.Version() + 1) }), "the server has had versions from")
	})
}

func TestAVersionToComeIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		maps := clients.CoreV1().ConfigMaps("default")
		wanted := strconv.FormatInt(s.Version()+1, 10)
		began := time.Now()
		_, err := maps.List(t.Context(), from(wanted))
		require.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), "%v", err)
		seconds, _ := apierrors.SuggestsClientDelay(err)
		require.Positive(t, seconds)
		// The client tries again, as often as it does when it is told when to.
		require.Zero(t, time.Since(began)%time.Second)
		created := make(chan struct{})
		time.AfterFunc(time.Second, func() {
			defer close(created)
			create(t, clients, "a")
		})
		list, err := maps.List(t.Context(), from(wanted))
		<-created
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
	})
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		seconds := int64(90)
		w, err := clients.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{
			ResourceVersion: strconv.FormatInt(s.Version(), 10), AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
		require.NoError(t, err)
		defer w.Stop()
		_, err = clients.CoreV1().Secrets("default").Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		nothing(t, w)
		time.Sleep(time.Minute)
		e := next(t, w)
		require.Equal(t, watch.Bookmark, e.Type)
		require.Equal(t, strconv.FormatInt(s.Version(), 10), e.Object.(*corev1.ConfigMap).ResourceVersion)
		time.Sleep(27 * time.Second)
		nothing(t, w)
		time.Sleep(time.Second)
		require.Equal(t, watch.Bookmark, next(t, w).Type, "two seconds before the end")
		time.Sleep(2 * time.Second)
		ended(t, w)
	})
}

func TestWatchesThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		link := s.Link()
		slow := clientset(t, link.Config())
		maps, err := slow.CoreV1().ConfigMaps("default").Watch(t.Context(), from(strconv.FormatInt(s.Version(), 10)))
		require.NoError(t, err)
		defer maps.Stop()
		secrets, err := slow.CoreV1().Secrets("default").Watch(t.Context(), from(strconv.FormatInt(s.Version(), 10)))
		require.NoError(t, err)
		defer secrets.Stop()
		fast, err := clients.CoreV1().ConfigMaps("default").Watch(t.Context(), from(strconv.FormatInt(s.Version(), 10)))
		require.NoError(t, err)
		defer fast.Stop()

		link.DelayWatches("configmaps", time.Second)
		create(t, clients, "a")
		_, err = clients.CoreV1().Secrets("default").Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, "a", nameOf(next(t, fast)))
		require.Equal(t, "s", nameOf(next(t, secrets)))
		time.Sleep(999 * time.Millisecond)
		nothing(t, maps)
		time.Sleep(time.Millisecond)
		require.Equal(t, "a", nameOf(next(t, maps)))

		link.DelayWatches("configmaps", Never)
		create(t, clients, "b")
		create(t, clients, "c")
		time.Sleep(10 * time.Minute)
		nothing(t, maps)
		link.DelayWatches("configmaps", 0)
		require.Equal(t, "b", nameOf(next(t, maps)))
		require.Equal(t, "c", nameOf(next(t, maps)))
		nothing(t, maps)
	})
}

func TestWatchesThatAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		link := s.Link()
		begin := func(c kubernetes.Interface) watch.Interface {
			w, err := c.CoreV1().ConfigMaps("default").Watch(t.Context(), from(strconv.FormatInt(s.Version(), 10)))
			require.NoError(t, err)
			return w
		}
		mine, other := begin(clientset(t, link.Config())), begin(clients)
		link.CutWatches()
		ended(t, mine)
		nothing(t, other)
		s.CutWatches()
		ended(t, other)

		ctx, cancel := context.WithCancel(t.Context())
		w, err := clients.CoreV1().ConfigMaps("default").Watch(ctx, from(strconv.FormatInt(s.Version(), 10)))
		require.NoError(t, err)
		nothing(t, w)
		cancel()
		synctest.Wait()
		w.Stop()
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		link := s.Link()
		maps := clientset(t, link.Config()).CoreV1().ConfigMaps("default")
		there := func(name string) bool {
			_, err := clients.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
			return err == nil
		}
		try := func(name string, f Fault) error {
			link.Inject(func(r Request) Fault {
				require.Equal(t, "create", r.Verb)
				require.True(t, r.Writes())
				return f
			})
			_, err := maps.Create(t.Context(), configMap(name), metav1.CreateOptions{})
			return err
		}
		require.ErrorIs(t, try("reset", Reset), errReset)
		require.False(t, there("reset"))
		require.ErrorIs(t, try("lost", LoseAnswer), errReset)
		require.True(t, there("lost"))
		require.True(t, apierrors.IsForbidden(try("refused",
			Refuse(apierrors.NewForbidden(schema.GroupResource{}, "", nil)))))
		require.False(t, there("refused"))
		require.True(t, apierrors.IsTimeout(try("late",
			AnswerWith(apierrors.NewTimeoutError("the time has run out", 0)))))
		require.True(t, there("late"))
		began := time.Now()
		require.NoError(t, try("slow", Delay(time.Second, time.Minute)))
		require.Equal(t, time.Minute+time.Second, time.Since(began))
		done := false
		require.NoError(t, try("done", Do(func() { done = there("done") })))
		require.True(t, done)
		require.NoError(t, try("none", nil))

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		link.Inject(func(Request) Fault { return Delay(0, time.Minute) })
		_, err := maps.Create(ctx, configMap("given up"[:5]), metav1.CreateOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, there("given"), "the server has done it although nobody waited")
	})
}

func TestAClosedLinkIsADeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		link := s.Link()
		maps := clientset(t, link.Config()).CoreV1().ConfigMaps("default")
		w, err := maps.Watch(t.Context(), from(strconv.FormatInt(s.Version(), 10)))
		require.NoError(t, err)
		defer w.Stop()
		link.Inject(func(r Request) Fault { return Do(link.Close) })
		_, err = maps.Create(t.Context(), configMap("last"), metav1.CreateOptions{})
		require.ErrorIs(t, err, errReset)
		_, err = maps.Create(t.Context(), configMap("later"), metav1.CreateOptions{})
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, []Request{{Verb: "watch", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
			Namespace: "default"},
			{Verb: "create", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: "default"}},
			link.Requests())
		list, err := clients.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 1)
	})
}

func TestANamespaceIsEmptiedBeforeItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, clients := start(t)
		_, err := clients.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		o := configMap("a")
		o.Finalizers = []string{"example.com/f"}
		_, err = clients.CoreV1().ConfigMaps("n").Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = clients.CoreV1().ConfigMaps("n").Create(t.Context(), configMap("b"), metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, clients.CoreV1().Namespaces().Delete(t.Context(), "n", metav1.DeleteOptions{}))
		_, err = clients.CoreV1().ConfigMaps("n").Create(t.Context(), configMap("c"), metav1.CreateOptions{})
		require.True(t, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), "%v", err)
		time.Sleep(time.Second)
		left := Objects[*corev1.ConfigMap](s, "configmaps")
		require.Len(t, left, 1)
		require.NotNil(t, left[0].DeletionTimestamp)
		left[0].Finalizers = nil
		_, err = clients.CoreV1().ConfigMaps("n").Update(t.Context(), left[0], metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		_, err = clients.CoreV1().Namespaces().Get(t.Context(), "n", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

// TestANamespaceGoesWhenNobodyKeepsIt: the server takes only its own finalizer off its spec, once it is empty.
func TestANamespaceGoesWhenNobodyKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mine = corev1.FinalizerName("example.com/mine")
		_, clients := start(t)
		c := clients.CoreV1().Namespaces()
		n, err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{mine}}}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Equal(t, []corev1.FinalizerName{mine, corev1.FinalizerKubernetes}, n.Spec.Finalizers)
		require.NoError(t, c.Delete(t.Context(), "n", metav1.DeleteOptions{}))
		time.Sleep(time.Minute)
		n, err = c.Get(t.Context(), "n", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, []corev1.FinalizerName{mine}, n.Spec.Finalizers)
		n.Spec.Finalizers = nil
		_, err = c.Finalize(t.Context(), n, metav1.UpdateOptions{})
		require.NoError(t, err)
		_, err = c.Get(t.Context(), "n", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

func TestCustomResourcesCanHaveDefaultsAndValidation(t *testing.T) {
	resources := customResources()
	resources[0].Default = func(o *unstructured.Unstructured) {
		if _, ok, _ := unstructured.NestedString(o.Object, "spec", "size"); !ok {
			require.NoError(t, unstructured.SetNestedField(o.Object, "small", "spec", "size"))
		}
	}
	resources[0].Validate = func(o, old *unstructured.Unstructured) field.ErrorList {
		size, _, _ := unstructured.NestedString(o.Object, "spec", "size")
		if old != nil {
			if was, _, _ := unstructured.NestedString(old.Object, "spec", "size"); was != size {
				return field.ErrorList{field.Invalid(field.NewPath("spec", "size"), size, "does not change")}
			}
		}
		return nil
	}
	s := NewServer(t, Options{Resources: resources})
	trees, err := dynamic.NewForConfig(s.Config())
	require.NoError(t, err)
	gadgets := trees.Resource(resources[0].GroupVersionResource).Namespace("default")
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "corpus.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": "g"}}}
	o, err = gadgets.Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
	size, _, _ := unstructured.NestedString(o.Object, "spec", "size")
	require.Equal(t, "small", size)
	_, err = gadgets.Patch(t.Context(), "g", types.MergePatchType, []byte(`{"spec":{"size":"large"}}`),
		metav1.PatchOptions{})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "spec.size")
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	later := customResources()[0]
	later.Version += "beta9"
	for what, r := range map[string]Resource{
		"needs a resource, a version and a kind":     {},
		"there in two versions that no definition j": later,
		"is there twice": customResources()[0],
	} {
		require.Contains(t, refusal(t, Options{Resources: []Resource{r, customResources()[0]}}), what)
	}
}

// TestGroupsOfKubernetesAreNoCustomResources: the server has other names, checks and escalations for them. Custom
// resources may be in a group that ends alike.
func TestGroupsOfKubernetesAreNoCustomResources(t *testing.T) {
	in := func(group string) Options {
		return Options{Resources: []Resource{{Kind: "Thing",
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "things"}}}}
	}
	for _, group := range []string{"", "apps", "mine", "rbac.authorization.k8s.io", "networking.k8s.io",
		"apiextensions.k8s.io", "apiregistration.k8s.io", "storage.k8s.io"} {
		require.Contains(t, refusal(t, in(group)), "is one of Kubernetes itself and no custom resource", group)
	}
	for _, group := range []string{"snapshot.storage.k8s.io", "gateway.networking.k8s.io", "example.com"} {
		server, err := Start(in(group))
		require.NoError(t, err)
		server.Close()
	}
}

func TestTheSameSeedGivesTheSameNames(t *testing.T) {
	names := func(seed uint64) (all []string) {
		s := NewServer(t, Options{Seed: seed})
		for range 3 {
			o, err := clientset(t, s.Config()).CoreV1().ConfigMaps("default").Create(t.Context(),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
			require.NoError(t, err)
			all = append(all, o.Name, string(o.UID))
		}
		return all
	}
	require.Equal(t, names(1), names(1))
	require.NotEqual(t, names(1), names(2))
}

// TestClaimsStayWhileAPodUsesThem is about the finalizer of PersistentVolumeClaims, which the collector takes off.
func TestClaimsStayWhileAPodUsesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, clients := start(t)
		claims, pods := clients.CoreV1().PersistentVolumeClaims("default"), clients.CoreV1().Pods("default")
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec: corev1.PodSpec{
				NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i:1"}},
				Volumes: []corev1.Volume{{Name: "v",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.NoError(t, claims.Delete(t.Context(), "c", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		claim, err := claims.Get(t.Context(), "c", metav1.GetOptions{})
		require.NoError(t, err)
		require.NotNil(t, claim.DeletionTimestamp)
		require.Equal(t, []string{claimProtection}, claim.Finalizers)
		require.NoError(t, pods.Delete(t.Context(), "p", *metav1.NewDeleteOptions(0)))
		time.Sleep(time.Second)
		_, err = claims.Get(t.Context(), "c", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	})
}

// TestANamespaceIsFinalized by whoever empties it, where the server's own controller is late.
func TestANamespaceIsFinalized(t *testing.T) {
	s := NewServer(t, Options{CollectAfter: time.Hour, Namespaces: []string{"team"}})
	c := kubernetes.NewForConfigOrDie(s.Config()).CoreV1().Namespaces()
	ctx := t.Context()
	n, err := c.Get(ctx, "team", metav1.GetOptions{})
	require.NoError(t, err)
	n.Spec.Finalizers, n.Labels = nil, map[string]string{"a": "b"}
	kept, err := c.Update(ctx, n, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Len(t, kept.Spec.Finalizers, 1, "an update takes none off")
	require.NoError(t, c.Delete(ctx, "team", metav1.DeleteOptions{}))
	n, err = c.Get(ctx, "team", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.NamespaceTerminating, n.Status.Phase)
	n.Spec.Finalizers, n.Status = nil, corev1.NamespaceStatus{}
	_, err = c.Finalize(ctx, n, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = c.Get(ctx, "team", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// TestServicesShareNothing that each is to have for itself, however many are made at the same time; what was given back
// can be had again.
func TestServicesShareNothing(t *testing.T) {
	const each = 20
	s := NewServer(t, Options{})
	services := clientset(t, s.Config()).CoreV1().Services("default")
	made := func(name string, port int32) (*corev1.Service, error) {
		return services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
				Ports: []corev1.ServicePort{{Port: 80, NodePort: port}}}}, metav1.CreateOptions{})
	}
	var all sync.WaitGroup
	var refused, failed atomic.Int32
	for n := range each {
		all.Go(func() {
			if _, err := made(fmt.Sprint("draws-", n), 0); err != nil {
				failed.Add(1)
			}
		})
		all.Go(func() {
			if _, err := made(fmt.Sprint("chooses-", n), 30001); apierrors.IsInvalid(err) {
				refused.Add(1)
			} else if err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	require.Zero(t, failed.Load())
	require.EqualValues(t, each-1, refused.Load())
	have := map[any]bool{}
	for _, o := range Objects[*corev1.Service](s, "services") {
		have[o.Spec.ClusterIP], have[o.Spec.Ports[0].NodePort] = true, true
		if o.Spec.Ports[0].NodePort == 30001 {
			require.NoError(t, services.Delete(t.Context(), o.Name, metav1.DeleteOptions{}))
		}
	}
	require.Len(t, have, 2*(each+1))
	_, err := made("again", 30001)
	require.NoError(t, err)
}
