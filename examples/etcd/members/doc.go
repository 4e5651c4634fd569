// Package members is what the operator knows of etcd: four questions and actions, as an interface, so that tests of
// the operator have a fake of it; and the client that sends them.
//
// # Reading order
//
// members.go: the interface. client.go: etcd's own client behind it. heard.go: what only the metrics of etcd say.
package members
