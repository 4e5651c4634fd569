package informer_test

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/fakeapi"
)

// podClient stands for clientset.CoreV1().Pods(metav1.NamespaceAll): two pods on two nodes.
func podClient() *fakeapi.Resource[*corev1.Pod, *corev1.PodList] {
	pods := fakeapi.New[*corev1.Pod](func() *corev1.PodList { return &corev1.PodList{} })
	for name, node := range map[string]string{"web": "node-1", "db": "node-2"} {
		pods.Create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{NodeName: node},
		})
	}
	return pods
}

func ExampleNew() {
	pods, err := informer.New[*corev1.Pod](podClient(), informer.Options[*corev1.Pod]{
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
	pods, err := informer.New[*corev1.Pod](podClient(), informer.Options[*corev1.Pod]{})
	if err != nil {
		panic(err)
	}
	byNode, err := informer.AddIndex(pods, func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} })
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
	client := podClient()
	pods, err := informer.New[*corev1.Pod](client, informer.Options[*corev1.Pod]{})
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

	client.Delete("default", "web")
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
	// clientset.CoreV1().Pods
	clients := map[string]*fakeapi.Resource[*corev1.Pod, *corev1.PodList]{}
	for namespace, name := range map[string]string{"team-a": "web", "team-b": "db", "team-c": "cache"} {
		clients[namespace] = fakeapi.New[*corev1.Pod](func() *corev1.PodList { return &corev1.PodList{} })
		clients[namespace].Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	podsIn := func(namespace string) *fakeapi.Resource[*corev1.Pod, *corev1.PodList] { return clients[namespace] }

	pods, err := informer.NewNamespaced[*corev1.Pod](podsIn, []string{"team-a", "team-b"},
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
	// metadata.NewForConfigOrDie(config).Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	client := fakeapi.New[*metav1.PartialObjectMetadata](
		func() *metav1.PartialObjectMetadataList { return &metav1.PartialObjectMetadataList{} })
	client.Create(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web",
		Labels: map[string]string{"app": "web"}}})

	pods, err := informer.New[*metav1.PartialObjectMetadata](client,
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
