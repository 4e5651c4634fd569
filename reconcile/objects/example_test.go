package objects_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// A condition that stays as it is keeps its transition time, and another generation shows in it.
func ExampleSetCondition() {
	var conditions []metav1.Condition
	for generation := range int64(3) {
		err := objects.SetCondition(&conditions, generation, metav1.Condition{
			Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllPodsReady",
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(len(conditions), conditions[0].ObservedGeneration)
	fmt.Println(objects.ConditionTrue(conditions, "Ready", 2), objects.ConditionTrue(conditions, "Ready", 3))
	// Output:
	// 1 2
	// true false
}

// The status is written once: the second time it is right already.
func ExampleUpdateStatus() {
	ctx := context.Background()
	seen := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1",
		ResourceVersion: "7", Generation: 2}}
	client := fake.NewClientset(seen)

	for range 2 {
		updated, err := objects.UpdateStatus(ctx, client.CoreV1().Services("default"), seen,
			func(service *corev1.Service) error {
				return objects.SetCondition(&service.Status.Conditions, service.Generation, metav1.Condition{
					Type: "Ready", Status: metav1.ConditionTrue, Reason: "Answers",
				})
			})
		if err != nil {
			fmt.Println(err)
			return
		}
		seen = updated // in a controller it comes from the cache
	}
	for _, action := range client.Actions() {
		fmt.Println(action.GetVerb(), action.GetResource().Resource+"/"+action.GetSubresource())
	}
	// Output: update services/status
}

// Two Websites share a ConfigMap that says which of them has a host. Each applies its own entry as a manager of its
// own, so the second one learns who has the host already, and gets it when that one has let it go.
func ExampleApply_shared() {
	ctx := context.Background()
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	hosts := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")

	take := func(site string, entries map[string]string) {
		_, err := objects.Apply(ctx, hosts.Apply, corev1ac.ConfigMap("hosts", "default").WithData(entries),
			metav1.ApplyOptions{FieldManager: "websites-" + site}) // no Force: who came first keeps it
		var conflict *objects.ApplyConflictError
		switch {
		case errors.As(err, &conflict):
			fmt.Println(site, "waits:", conflict.Conflicts[0].Field, "is managed by", conflict.Conflicts[0].Manager)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(site, "has", len(entries))
		}
	}
	take("blue", map[string]string{"example.com": "blue"})
	take("green", map[string]string{"example.com": "green"})
	take("blue", nil) // the entries that it had are removed
	take("green", map[string]string{"example.com": "green"})
	// Output:
	// blue has 1
	// green waits: .data.example.com is managed by websites-blue
	// blue has 0
	// green has 1
}

// A bucket in some cloud lives and dies with an object in the cluster.
func ExampleFinalize() {
	ctx := context.Background()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "photos", UID: "1"}}
	client := fake.NewClientset(o).CoreV1().ConfigMaps("default")

	reconcileBucket := func(o *corev1.ConfigMap) {
		o, alive, err := objects.Finalize(ctx, client, o, "example.com/bucket", func(context.Context) (bool, error) {
			fmt.Println("delete the bucket", o.Name)
			return true, nil
		})
		if err != nil || !alive {
			return
		}
		fmt.Println("make the bucket", o.Name, "as", o.Finalizers, "will see to its end")
	}

	reconcileBucket(o)
	o, _ = client.Get(ctx, "photos", metav1.GetOptions{})
	o.DeletionTimestamp = new(metav1.Now()) // as after a kubectl delete
	reconcileBucket(o)
	o, _ = client.Get(ctx, "photos", metav1.GetOptions{})
	fmt.Println("finalizers:", o.Finalizers)
	// Output:
	// make the bucket photos as [example.com/bucket] will see to its end
	// delete the bucket photos
	// finalizers: []
}

// Of three pods with the right labels, one is ours, one is somebody else's, and one is nobody's until now. A fourth is
// ours, and not wanted any more.
func ExampleClaim() {
	ctx := context.Background()
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	web := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web-uid"}}
	other := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", UID: "other-uid"}}
	pod := func(name, app string, owners ...metav1.OwnerReference) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: "1", Labels: map[string]string{"app": app}, OwnerReferences: owners,
		}}
	}
	candidates := []*corev1.Pod{
		pod("ours", "web", *metav1.NewControllerRef(web, kind)),
		pod("theirs", "web", *metav1.NewControllerRef(other, kind)),
		pod("orphan", "web"),
		pod("debugged", "none", *metav1.NewControllerRef(web, kind)),
	}
	client := fake.NewClientset(web, candidates[0], candidates[1], candidates[2], candidates[3])

	owner := objects.NewOwner(client.AppsV1().ReplicaSets("default"), web, kind)
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	mine, err := objects.Claim(ctx, owner, client.CoreV1().Pods("default"), slices.Values(candidates),
		func(p *corev1.Pod) bool {
			return selector.Matches(labels.Set(p.Labels))
		})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range mine {
		fmt.Println("mine:", p.Name)
	}
	for _, action := range client.Actions() {
		fmt.Println(action.GetVerb(), action.GetResource().Resource)
	}
	// Output:
	// mine: ours
	// mine: orphan
	// get replicasets
	// patch pods
	// patch pods
}

// Creating again what is there already is a success, unless it is somebody else's.
func ExampleCreateOwned() {
	ctx := context.Background()
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	client := fake.NewClientset()
	for _, name := range []string{"web", "other"} {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			UID: types.UID("uid of " + name)}}
		owner := objects.NewOwner(client.AppsV1().ReplicaSets("default"), rs, kind)
		for range 2 {
			settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
			_, err := objects.CreateOwned(ctx, owner, client.CoreV1().ConfigMaps("default"), settings)
			var taken *objects.TakenError
			fmt.Println(name, err == nil, errors.As(err, &taken))
		}
	}
	// Output:
	// web true false
	// web true false
	// other false true
	// other false true
}

// A team has a ConfigMap for each of its members. Who leaves the team loses it.
func ExampleApplySet() {
	ctx := context.Background()
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	maps := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps
	team, err := maps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	owner := objects.NewOwner(maps("default"), team, corev1.SchemeGroupVersion.WithKind("ConfigMap"))

	reconcile := func(members ...string) {
		var configs []any
		for _, name := range members {
			configs = append(configs, corev1ac.ConfigMap(name, "default").WithData(map[string]string{"desk": "1"}))
		}
		seen, err := maps("default").List(ctx, metav1.ListOptions{}) // a controller reads a cache
		if err != nil {
			fmt.Println(err)
			return
		}
		var ours []*corev1.ConfigMap
		for i := range seen.Items {
			ours = append(ours, &seen.Items[i])
		}
		outcomes, err := objects.ApplySet(ctx, owner, metav1.ApplyOptions{FieldManager: "teams", Force: true},
			objects.Children(maps, slices.Values(ours), configs...).Exactly(".data"))
		for _, o := range outcomes {
			fmt.Println(o.Effect, o.Key.Name)
		}
		fmt.Println(len(outcomes), "objects,", err)
	}
	reconcile("ann", "bob")
	reconcile("bob")
	reconcile("bob")
	reconcile()
	reconcile()
	// Output:
	// applied ann
	// applied bob
	// 2 objects, <nil>
	// kept bob
	// deleting ann
	// 2 objects, <nil>
	// kept bob
	// 1 objects, <nil>
	// deleting bob
	// 1 objects, <nil>
	// 0 objects, <nil>
}

// Two managers, one field, and one of them insists.
func ExampleApply() {
	ctx := context.Background()
	maps := fake.NewClientset().CoreV1().ConfigMaps("default")
	apply := func(manager, colour string, force bool) {
		config := corev1ac.ConfigMap("settings", "default").WithData(map[string]string{"colour": colour})
		_, err := objects.Apply(ctx, maps.Apply, config, metav1.ApplyOptions{FieldManager: manager, Force: force})
		var conflict *objects.ApplyConflictError
		if errors.As(err, &conflict) {
			fmt.Println(manager, "would take", conflict.Conflicts[0].Field, "from", conflict.Conflicts[0].Manager)
			return
		}
		fmt.Println(manager, colour, err)
	}
	apply("designer", "blue", false)
	apply("operator", "red", false)
	apply("operator", "red", true)
	// Output:
	// designer blue <nil>
	// operator would take .data.colour from designer
	// operator red <nil>
}

// A controller that applies in each Reconcile sends what has changed, and nothing else.
func ExampleApplyChanges() {
	ctx := context.Background()
	client := fake.NewClientset()
	maps := client.CoreV1().ConfigMaps("default")
	var seen *corev1.ConfigMap // in a controller it comes from the cache
	for _, colour := range []string{"blue", "blue", "red", "red"} {
		config := corev1ac.ConfigMap("settings", "default").WithData(map[string]string{"colour": colour})
		applied, err := objects.ApplyChanges(ctx, maps.Apply, corev1ac.ExtractConfigMap, seen, config,
			metav1.ApplyOptions{FieldManager: "designer"})
		if err != nil {
			fmt.Println(err)
			return
		}
		seen = applied
	}
	fmt.Println(seen.Data["colour"], "after", len(client.Actions()), "requests")
	// Output: red after 2 requests
}

// A quota allows five of a hundred. It takes 7 requests to find out, not 100.
func ExampleSlowStart() {
	quota := make(chan struct{}, 5)
	made, err := objects.SlowStart(context.Background(), 100, func(int) error {
		select {
		case quota <- struct{}{}:
			return nil
		default:
			return errors.New("the quota is used up")
		}
	})
	fmt.Println(made, err)
	// Output: 5 the quota is used up
}
