package processnode_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
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
	if len(os.Args) < 2 || os.Args[1] != container {
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
		if with != "0" {
			os.Exit(1 + len(with))
		}
		os.Exit(0)
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
	case "serve": // 503 until the file /ready below the folder is there
		address, file, _ := strings.Cut(with, ",")
		go func() {
			fmt.Println(http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := os.Stat(file); err != nil {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})))
		}()
	case "wait": // for SIGTERM
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
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
	c := cluster.Shared(t)
	self, err := os.Executable()
	require.NoError(t, err)
	return &world{t: t, client: c.Client(), namespace: c.Namespace(t), pool: processnode.New(t, c, processnode.Options{
		RestartBackOff: 200 * time.Millisecond,
		Images: map[string]processnode.Image{"test": {
			Programs: map[string]string{"test": self}, Entrypoint: []string{"test", container},
		}},
	})}
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

func succeeded(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }
