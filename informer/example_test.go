package informer_test

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/thermostat-go/thermostat/informer"
)

// newClientset makes a fake one of client-go, with two pods on two nodes. A program has kubernetes.NewForConfig there.
func newClientset() *fake.Clientset {
	return fake.NewClientset(newPod("default", "web", "node-1"), newPod("default", "db", "node-2"))
}

func newPod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node}}
}

// watching returns a channel that is closed when a watch of pods begins: a fake tells a watch of nothing that was
// before it.
func watching(clientset *fake.Clientset) <-chan struct{} {
	begun := make(chan struct{})
	clientset.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
		w, err := clientset.Tracker().Watch(a.GetResource(), a.GetNamespace())
		close(begun)
		return true, w, err
	})
	return begun
}

func ExampleNew() {
	clientset := newClientset()
	pods, err := informer.New[*corev1.Pod](clientset.CoreV1().Pods(metav1.NamespaceAll), informer.Options[*corev1.Pod]{
		// Nobody here reads who owns which field, and it is often half of an object.
		Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
			p.ManagedFields = nil
			return p, nil
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- pods.Run(ctx) }()

	if err := pods.WaitForSync(ctx); err != nil {
		panic(err)
	}
	web, ok := pods.Get(informer.Key{Namespace: "default", Name: "web"})
	fmt.Println(ok, web.Spec.NodeName, pods.Len())

	stop()
	fmt.Println(<-stopped)
	// Output:
	// true node-1 2
	// <nil>
}

func ExampleAddIndex() {
	clientset := newClientset()
	pods, err := informer.New[*corev1.Pod](clientset.CoreV1().Pods(metav1.NamespaceAll),
		informer.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	byNode, err := informer.AddIndex(pods, func(p *corev1.Pod, add func(string)) { add(p.Spec.NodeName) })
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- pods.Run(ctx) }()
	if err := pods.WaitForSync(ctx); err != nil {
		panic(err)
	}

	for pod := range byNode.Get("node-2") {
		fmt.Println(pod.Name)
	}
	fmt.Println(slices.Sorted(slices.Values(byNode.Values())))

	stop()
	<-stopped
	// Output:
	// db
	// [node-1 node-2]
}

func ExampleSharedIndexInformer_AddHandler() {
	clientset := newClientset()
	watched := watching(clientset)
	pods, err := informer.New[*corev1.Pod](clientset.CoreV1().Pods(metav1.NamespaceAll),
		informer.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	told := make(chan informer.Event[*corev1.Pod])
	printer, err := pods.AddHandler(func(e informer.Event[*corev1.Pod]) {
		if !e.Initial { // what was there before is not news
			told <- e
		}
	}, informer.HandlerOptions{Name: "printer"})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- pods.Run(ctx) }()
	<-printer.Synced()

	<-watched
	if err := clientset.CoreV1().Pods("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		panic(err)
	}
	e := <-told
	fmt.Println(e.Type, e.Key)
	_, held := pods.Get(e.Key)
	fmt.Println("still in the cache:", held)

	stop()
	<-stopped
	// Output:
	// Deleted default/web
	// still in the cache: false
}

// A program that may not list the whole cluster follows some namespaces, in one cache, and changes them while it runs.
func ExampleNewNamespaced() {
	clientset := fake.NewClientset(newPod("team-a", "web", ""), newPod("team-b", "db", ""),
		newPod("team-c", "cache", ""))
	pods, err := informer.NewNamespaced[*corev1.Pod](clientset.CoreV1().Pods, []string{"team-a", "team-b"},
		informer.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- pods.Run(ctx) }()
	held := func() (keys []string) {
		for pod := range pods.All() {
			keys = append(keys, informer.KeyOf(pod).String())
		}
		slices.Sort(keys)
		return keys
	}
	if err := pods.WaitForSync(ctx); err != nil {
		panic(err)
	}
	fmt.Println(held())

	scope := pods.Scope()
	scope.Namespaces = []string{"team-b", "team-c"}
	if err := pods.Rescope(scope); err != nil {
		panic(err)
	}
	_, ok := pods.Get(informer.Key{Namespace: "team-a", Name: "web"})
	fmt.Println("still in the cache:", ok)
	if err := pods.WaitForSync(ctx); err != nil { // team-c has to be listed
		panic(err)
	}
	fmt.Println(held())

	stop()
	<-stopped
	// Output:
	// [team-a/web team-b/db]
	// still in the cache: false
	// [team-b/db team-c/cache]
}

// An informer of metadata alone holds no specs and no statuses: enough for owners, labels and finalizers, of any
// resource.
func ExampleNew_metadata() {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
			Labels: map[string]string{"app": "web"}}}) // a program has metadata.NewForConfig there

	pods, err := informer.New[*metav1.PartialObjectMetadata](
		client.Resource(corev1.SchemeGroupVersion.WithResource("pods")),
		informer.Options[*metav1.PartialObjectMetadata]{Name: "pods"})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- pods.Run(ctx) }()
	if err := pods.WaitForSync(ctx); err != nil {
		panic(err)
	}
	for pod := range pods.All() {
		fmt.Println(pod.Name, pod.Labels["app"])
	}

	stop()
	<-stopped
	// Output:
	// web web
}
