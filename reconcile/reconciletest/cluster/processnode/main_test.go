package processnode_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/processnode"
)

// The test binary is the image of the tests: its second word makes it a container, which does one step after the other.
const container = "container"

func TestMain(m *testing.M) {
	if os.Getenv(startOnly) != "" {
		startOnlyMain()
	}
	if len(os.Args) < 2 || os.Args[1] != container {
		os.Setenv("LEAK", "the environment of the tests is not that of a container")
		os.Exit(m.Run())
	}
	for _, word := range os.Args[2:] {
		step, with, _ := strings.Cut(word, "=")
		act(step, with)
	}
}

// act is one step of a container.
func act(step, with string) {
	switch step {
	case "say":
		fmt.Println(with)
	case "env":
		fmt.Printf("%s=%s\n", with, os.Getenv(with))
	case "exit":
		code, _ := strconv.Atoi(with)
		os.Exit(code)
	case "unless": // end well, unless a file is there
		if _, err := os.Stat(with); err != nil {
			os.Exit(0)
		}
	case "cat":
		content, err := os.ReadFile(with)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(string(content))
	case "add": // a line to a file
		f, err := os.OpenFile(with, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Fprintln(f, "line")
		f.Close()
	case "deaf": // to SIGTERM
		signal.Ignore(syscall.SIGTERM)
	case "serve": // 503 unless the file is there
		address, file, _ := strings.Cut(with, ",")
		go func() {
			fmt.Println(http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := os.Stat(file); err != nil {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})))
		}()
	case "get": // the status of an answer over HTTP
		answer, err := (&http.Client{Timeout: time.Second}).Get(with)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(answer.Status)
	case "wait": // for SIGTERM
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("waiting")
		<-ctx.Done()
		fmt.Println("terminated")
	case "hang":
		time.Sleep(time.Hour)
	default:
		fmt.Println("unknown step", step)
		os.Exit(1)
	}
}

// world is a pool of one node, and a namespace.
type world struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
	pool      *processnode.Pool
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	return newWorldOn(t, cluster.Shared(t), processnode.Options{})
}

func newWorldOn(t *testing.T, c *cluster.Cluster, o processnode.Options) *world {
	self, err := os.Executable()
	require.NoError(t, err)
	image := processnode.Image{Programs: map[string]string{"test": self}, Entrypoint: []string{"test", container}}
	if o.Images == nil {
		o.Images = map[string]processnode.Image{"test": image, "test:2": image}
	}
	o.RestartBackOff = cmp.Or(o.RestartBackOff, 200*time.Millisecond)
	return &world{t: t, client: c.Client(), namespace: c.Namespace(t), pool: processnode.New(t, c, o)}
}

// pod returns a pod for the first node of the pool. Its container does the steps.
func (w *world) pod(name string, steps ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: w.pool.Nodes()[0].Name},
			Containers:   []corev1.Container{{Name: "c", Image: "test", Args: steps}},
		},
	}
}

func (w *world) create(pod *corev1.Pod) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// until waits until a pod is as it should be, and returns it.
func (w *world) until(name, what string, ok func(pod *corev1.Pod) bool) (pod *corev1.Pod) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var err error
		pod, err = w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil && ok(pod)
	}, time.Minute, 20*time.Millisecond, "%s should be %s: %+v", name, what, pod)
	return pod
}

func (w *world) gone(name string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		_, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, time.Minute, 20*time.Millisecond, "%s should go", name)
}

// says waits until the latest process of a pod's container has written something, and returns its log.
func (w *world) says(name, text string) (log string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		path, err := w.pool.LogFile(w.key(name), "")
		if err != nil {
			return false
		}
		content, err := os.ReadFile(path)
		log = string(content)
		return err == nil && strings.Contains(log, text)
	}, time.Minute, 20*time.Millisecond, "%s should say %s", name, text)
	return log
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func (w *world) delete(name string, grace int64) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name,
		metav1.DeleteOptions{GracePeriodSeconds: &grace}))
}

// event waits until there is an Event about a pod with this reason and text.
func (w *world) event(pod, reason, text string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		list, err := w.client.CoreV1().Events(w.namespace).List(w.t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == pod && e.Reason == reason && strings.Contains(e.Message, text)
		})
	}, time.Minute, 50*time.Millisecond, "an Event %s about %s: %s", reason, pod, text)
}

// state is that of a pod's first container.
func state(pod *corev1.Pod) corev1.ContainerState {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerState{}
	}
	return pod.Status.ContainerStatuses[0].State
}

func restarts(n int32) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return ready(pod) && pod.Status.ContainerStatuses[0].RestartCount == n }
}

func waits(reason string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return state(pod).Waiting != nil && state(pod).Waiting.Reason == reason }
}

func failed(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed }

func succeeded(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// runs reports whether a process has a file open.
func runs(path string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/1")
	return slices.ContainsFunc(links, func(link string) bool {
		to, err := os.Readlink(link)
		return err == nil && to == path
	})
}
