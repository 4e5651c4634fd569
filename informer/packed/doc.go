// Package packed makes an informer hold its objects as compressed bytes, and decodes one when it is asked for. 150,000
// pods of a large cluster then take a fifth of the memory, or less, and Get of one that nobody has asked for lately
// takes some 15 µs instead of 60 ns.
//
//	pods, err := packed.New[*corev1.Pod](packed.Options{})
//	inf, err := informer.Project(resource, pods.Pack, informer.Options[*corev1.Pod]{})
//	byNode, err := informer.AddIndex(inf, packed.Index(nodes)) // of func nodes(*corev1.Pod, func(string))
//	...
//	value, ok := inf.Get(key)
//	pod, err := value.Object()
//
// A manager of controller-runtime, or a factory of client-go, takes the constructor that [Informers] returns, and holds
// chosen kinds so.
//
// It is for a process that caches much and reads little of it: an inventory, a dashboard, a controller that needs whole
// objects of a few keys. A controller that reads the same few fields of all objects is better off with those fields:
// see [informer.Project]. A controller that reads all objects all the time is better off with [informer.New].
//
// # How it works
//
// An object is encoded as protobuf if its type can, as the types of k8s.io/api do, and as JSON otherwise, and then
// compressed with Zstandard. The first 16 objects serve as the dictionary of all later ones, since objects of a kind
// resemble each other; they themselves are not compressed. The objects that were asked for last are kept decoded: see
// Options.Hot. Keys, UIDs and versions are outside of the bytes, so the informer decodes nothing for itself.
//
// What comes back is what went in, as far as the encoding tells: protobuf and JSON with omitempty do not tell an empty
// list or map from none.
//
// # What it costs
//
// An object that was not asked for lately is decoded: a pod of 2.4 kB in 13 µs on an idle core. That is one Get. A
// List or ByIndex decodes each of its objects, and a handler each that it is told of, both states of an update: a List
// of 150,000 pods takes some 2 s at that rate, where it takes none without this package, and as much memory as they
// would have taken, for as long as the list is kept. So it is not for programs that list all objects again and again.
//
// The package is a module of its own, for the sake of its dependency on github.com/klauspost/compress.
package packed
