// Package intern lets the objects of one type share what they have in common: the strings, maps, tolerations and field
// sets that the pods of a ReplicaSet, of a namespace, of an image repeat.
//
// A decoder makes a new string of each "app.kubernetes.io/name", and a new map around it. More than half of the memory
// of 150,000 realistic pods is such repetitions. [Interner.Unmarshal] decodes protobuf, and [Interner.FromJSON]
// decodes JSON, and neither decodes what it knows already. [Interner.Object] goes through an object that has been
// decoded: it serves the objects that the other two leave to the type itself and to package json.
//
// All three reach the fields of an object by their offsets, with package unsafe: reflect would allocate for each field
// that it sets, and to avoid allocations is the purpose. The offsets and types come from reflect when a type is first
// seen. A message that is not encoded as Kubernetes encodes it is left to the type's own Unmarshal, and JSON that is
// not as a server sends it to package json. No other package of the library is unsafe.
//
// With the build tag purego nothing is shared, and nothing is unsafe: Unmarshal is the type's own.
//
//	intern.go     Interner, and the tables in which it remembers
//	message.go    what the fields of a type are in protobuf
//	change.go     when objects may be changed
//	unmarshal.go  protobuf into objects that share
//	part.go       what a field holds, shared by its bytes
//	twin.go       what is shared only once the object is no longer changed
//	named.go      what the fields of a type are in JSON
//	text.go       where the values in JSON begin and end
//	json.go       JSON into objects that share
//	untyped.go    JSON into objects without a type
//	plan.go       where in objects of a type there is something to share, for Object
//	share.go      how Object shares each kind of value
//	pure.go       the twin without package unsafe
package intern

type unmarshaler interface{ Unmarshal([]byte) error }
