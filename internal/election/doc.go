// Package election has what packages leaderelection and reconcile/sharding share: the connection of a client
// of Leases (transport.go), how much is left of a tenure (clock.go), and a transport that writes only during one
// (fence.go).
package election
