package builtin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

const cluster = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: %[1]q}]}
---
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {selector: {app: db}, ports: [{port: 80, targetPort: sql}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      initContainers: [{name: i, image: i}]
      containers: [{name: c, image: %[1]q, ports: [{name: sql, containerPort: 5432}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// TestTheWorldHasAllKinds is about those that the models of package reconciletest have not: DaemonSets, Endpoints and
// claims of StatefulSets. A program that does nothing is blamed for nothing, whatever goes wrong.
func TestTheWorldHasAllKinds(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: func(ctx context.Context, _ *rest.Config) error {
			<-ctx.Done()
			return nil
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps:  reconciletest.ApplyYAML(fmt.Sprintf(cluster, "c:1"), fmt.Sprintf(cluster, "c:2")),
		Budget: 100 * time.Millisecond,
		Settled: func(s *reconciletest.Server) error {
			agent, _ := reconciletest.Get[*appsv1.DaemonSet](s, "daemonsets.apps", "default", "agent")
			if n := agent.Status; n.NumberReady != 1 || n.UpdatedNumberScheduled != 1 || n.DesiredNumberScheduled != 1 {
				return fmt.Errorf("the status of the DaemonSet is %+v", n)
			}
			pods := reconciletest.List[*corev1.Pod](s, "pods", "default")
			for _, p := range pods {
				if p.Spec.Containers[0].Image != "c:2" || p.Spec.NodeName != "node" || p.Status.PodIP == "" {
					return fmt.Errorf("%s has the image %s, the node %q and the address %q", p.Name,
						p.Spec.Containers[0].Image, p.Spec.NodeName, p.Status.PodIP)
				}
			}
			if len(pods) != 3 {
				return fmt.Errorf("there are %d pods", len(pods))
			}
			claims := reconciletest.List[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default")
			for _, c := range claims {
				if c.Status.Phase != corev1.ClaimBound {
					return fmt.Errorf("the claim %s is %s", c.Name, c.Status.Phase)
				}
			}
			return behindService(s)
		},
	})
}

func behindService(s *reconciletest.Server) error {
	slice, ok := reconciletest.Get[*discoveryv1.EndpointSlice](s, "endpointslices.discovery.k8s.io", "default", "db-1")
	if !ok || len(slice.Endpoints) != 2 || *slice.Ports[0].Port != 5432 {
		return fmt.Errorf("the EndpointSlice is %+v", slice)
	}
	for _, e := range slice.Endpoints {
		if !*e.Conditions.Ready || *e.NodeName != "node" {
			return fmt.Errorf("%v is not ready", e)
		}
	}
	plain, ok := reconciletest.Get[*corev1.Endpoints](s, "endpoints", "default", "db")
	if !ok || len(plain.Subsets) != 1 || len(plain.Subsets[0].Addresses) != 2 ||
		plain.Subsets[0].Ports[0].Port != 5432 {
		return fmt.Errorf("the Endpoints are %+v", plain)
	}
	return nil
}

// TestAddressesOfPodsAreNotCompared wherever a program copies them: a pod that is made anew has another one.
func TestAddressesOfPodsAreNotCompared(t *testing.T) {
	found := reconciletest.Search(t, reconciletest.Scenario{
		Run: func(ctx context.Context, cfg *rest.Config) error {
			c := kubernetes.NewForConfigOrDie(cfg).CoreV1()
			for wrote := ""; ; {
				peers := ""
				pods, err := c.Pods("default").List(ctx, metav1.ListOptions{})
				if err == nil {
					for _, p := range pods.Items {
						peers += p.Name + "=" + p.Status.PodIP + " "
					}
				}
				if err == nil && peers != wrote {
					m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "peers"},
						Data: map[string]string{"peers": peers}}
					_, err := c.ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
					if apierrors.IsNotFound(err) {
						_, err = c.ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
					}
					if err == nil {
						wrote = peers
					}
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(700 * time.Millisecond):
				}
			}
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps:  reconciletest.ApplyYAML(fmt.Sprintf(cluster, "c:1")),
		Replay: "v1 seed=0 steps=1: namesake after step 1",
	})
	if len(found) > 0 {
		t.Error(found)
	}
}

// TestDaemonSetsFollowTheNodes as their labels change.
func TestDaemonSetsFollowTheNodes(t *testing.T) {
	node := func(name, disk string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {disk: %s}}\n---\n", name, disk)
	}
	agent := `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {nodeSelector: {disk: ssd}, containers: [{name: c, image: c}]}
`
	found := reconciletest.Search(t, reconciletest.Scenario{
		Run: func(ctx context.Context, _ *rest.Config) error {
			<-ctx.Done()
			return nil
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps:  reconciletest.ApplyYAML(node("a", "ssd")+node("b", "hdd")+agent, node("a", "hdd")+node("b", "ssd")),
		Replay: "v1 seed=0 steps=2: ",
		Settled: func(s *reconciletest.Server) error {
			pods := reconciletest.List[*corev1.Pod](s, "pods", "default")
			if len(pods) != 1 || pods[0].Spec.NodeName != "b" {
				return fmt.Errorf("the pods are %v", pods)
			}
			return nil
		},
	})
	if len(found) > 0 {
		t.Error(found)
	}
}

// TestPodsRunWhereTheyHaveTo by their node affinity, and so do those that a DaemonSet has.
func TestPodsRunWhereTheyHaveTo(t *testing.T) {
	const affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: " +
		"{nodeSelectorTerms: [%s]}}}"
	pod := func(name, term string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n"+
			"  containers: [{name: c, image: c}]\n  "+affinity+"\n---\n", name, term)
	}
	agent := "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\nspec:\n" +
		"  selector: {matchLabels: {app: agent}}\n  template:\n    metadata: {labels: {app: agent}}\n    spec:\n" +
		"      containers: [{name: c, image: c}]\n      " +
		fmt.Sprintf(affinity, "{matchExpressions: [{key: is, operator: In, values: [c]}]}") + "\n"
	var nodes string
	long := strings.Repeat("z", 64) // a label's value has at most 63
	for _, name := range []string{"a", "b", "c", long} {
		nodes += fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {is: %.63s}}\n---\n", name, name)
	}
	found := reconciletest.Search(t, reconciletest.Scenario{
		Run: func(ctx context.Context, _ *rest.Config) error {
			<-ctx.Done()
			return nil
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps: reconciletest.ApplyYAML(nodes +
			pod("by-name", "{matchFields: [{key: metadata.name, operator: In, values: [b]}]}") +
			pod("by-long-name", "{matchFields: [{key: metadata.name, operator: In, values: ["+long+"]}]}") +
			pod("by-label", "{matchExpressions: [{key: is, operator: NotIn, values: [a, b, node]}]}") +
			pod("either", "{matchExpressions: [{key: is, operator: In, values: [none]}]}, "+
				"{matchExpressions: [{key: is, operator: Exists}, {key: is, operator: NotIn, values: [a]}]}") +
			agent),
		Replay: "v1 seed=0 steps=1: ",
		Settled: func(s *reconciletest.Server) error {
			on := map[string]string{}
			for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
				on[cmp.Or(p.Labels["app"], p.Name)] += p.Spec.NodeName
			}
			want := map[string]string{"by-name": "b", "by-long-name": long, "by-label": "c", "either": "b",
				"agent": "c"}
			if !maps.Equal(on, want) {
				return fmt.Errorf("the pods are on %v, want %v", on, want)
			}
			return nil
		},
	})
	if len(found) > 0 {
		t.Error(found)
	}
}

// TestANodeThatIsReported to be ready loses the taint of new ones; one that is reported to be anything else keeps it.
func TestANodeThatIsReported(t *testing.T) {
	found := reconciletest.Search(t, reconciletest.Scenario{
		Run: func(ctx context.Context, cfg *rest.Config) error {
			nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
			for name, is := range map[string]corev1.ConditionStatus{"ready": corev1.ConditionTrue,
				"broken": corev1.ConditionFalse, "silent": corev1.ConditionUnknown} {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: is}}}}
				_, err := nodes.Create(ctx, n, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
			<-ctx.Done()
			return nil
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps:  reconciletest.ApplyYAML("apiVersion: v1\nkind: Namespace\nmetadata: {name: begin}\n"),
		Replay: "v1 seed=0 steps=1: ",
		Settled: func(s *reconciletest.Server) error {
			taints := map[string]int{}
			for _, n := range reconciletest.List[*corev1.Node](s, "nodes", "") {
				taints[n.Name] = len(n.Spec.Taints)
			}
			want := map[string]int{"node": 0, "ready": 0, "broken": 1, "silent": 1}
			if !maps.Equal(taints, want) {
				return fmt.Errorf("the taints are %v, want %v", taints, want)
			}
			return nil
		},
	})
	if len(found) > 0 {
		t.Error(found)
	}
}

// TestAClaimIsBoundToTheVolumeThatItNames, which says so.
func TestAClaimIsBoundToTheVolumeThatItNames(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: func(ctx context.Context, _ *rest.Config) error {
			<-ctx.Done()
			return nil
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps: reconciletest.ApplyYAML(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  csi: {driver: disks.example.com, volumeHandle: disk}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: disk, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`),
		Replay: "v1 seed=0 steps=1: other order in step 1", // the claim is there first
		Settled: func(s *reconciletest.Server) error {
			claim, _ := reconciletest.Get[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default", "data")
			disk, _ := reconciletest.Get[*corev1.PersistentVolume](s, "persistentvolumes", "", "disk")
			if ref := disk.Spec.ClaimRef; claim.Status.Phase != corev1.ClaimBound || ref == nil ||
				ref.UID != claim.UID || disk.Status.Phase != corev1.VolumeBound {
				return fmt.Errorf("the claim is %s, the volume %s, of %v", claim.Status.Phase, disk.Status.Phase, ref)
			}
			return nil
		},
	})
}

// TestNothingBecomesOfPodsOnASilentNode until it is heard of again.
func TestNothingBecomesOfPodsOnASilentNode(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec: {nodeName: node, containers: [{name: c, image: c}]}
`
	steps := append(reconciletest.ApplyYAML(fmt.Sprintf(pod, "old")), reports(corev1.ConditionUnknown),
		reconciletest.ApplyYAML(fmt.Sprintf(pod, "new"))[0], reconciletest.Delete("pods", "default", "old"))
	for name, heard := range map[string]bool{"silent": false, "heard of": true} {
		after := slices.Clone(steps)
		if heard {
			after = append(after, reports(corev1.ConditionTrue))
		}
		t.Run(name, func(t *testing.T) {
			checkWorld(t, after, func(s *reconciletest.Server) error {
				_, there := reconciletest.Get[*corev1.Pod](s, "pods", "default", "old")
				p, _ := reconciletest.Get[*corev1.Pod](s, "pods", "default", "new")
				if runs := p.Status.Phase == corev1.PodRunning; runs != heard || there == heard {
					return fmt.Errorf("runs: %t, still there: %t", runs, there)
				}
				return nil
			})
		})
	}
}

// TestASilentNodeGetsNoPods as long as there is another one, and its pods go with it.
func TestASilentNodeGetsNoPods(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default}\n" +
		"spec: {%s containers: [{name: c, image: c}]}\n"
	steps := append(reconciletest.ApplyYAML("apiVersion: v1\nkind: Node\nmetadata: {name: second}\n---\n"+
		fmt.Sprintf(pod, "old", "nodeName: node,")), reports(corev1.ConditionUnknown),
		reconciletest.ApplyYAML(fmt.Sprintf(pod, "new", ""))[0], reconciletest.Delete("pods", "default", "old"),
		reconciletest.Delete("nodes", "", "node"))
	checkWorld(t, steps, func(s *reconciletest.Server) error {
		_, there := reconciletest.Get[*corev1.Pod](s, "pods", "default", "old")
		p, _ := reconciletest.Get[*corev1.Pod](s, "pods", "default", "new")
		if p.Spec.NodeName != "second" || p.Status.Phase != corev1.PodRunning || there {
			return fmt.Errorf("on %q: %s; the old one is still there: %t", p.Spec.NodeName, p.Status.Phase, there)
		}
		return nil
	})
}

// reports is a step in which somebody reports whether the node is ready.
func reports(status corev1.ConditionStatus) reconciletest.Step {
	return reconciletest.StepFunc("the node is reported", func(ctx context.Context, cfg *rest.Config) error {
		nodes := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes()
		n, err := nodes.Get(ctx, "node", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		_, err = nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// checkWorld runs some steps with a program that does nothing.
func checkWorld(t *testing.T, steps []reconciletest.Step, settled func(*reconciletest.Server) error) {
	t.Helper()
	reconciletest.Check(t, reconciletest.Scenario{
		Run: func(ctx context.Context, _ *rest.Config) error {
			<-ctx.Done()
			return nil
		},
		Server: reconciletest.Options{Kinds: Kinds()},
		World:  &reconciletest.World{},
		Steps:  steps, Settled: settled,
		Replay: fmt.Sprintf("v1 seed=0 steps=%d: ", len(steps)),
	})
}
