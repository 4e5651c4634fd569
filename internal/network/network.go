// Package network lets what runs with a context listen and connect elsewhere than on the machine: in a test, in memory.
package network

import (
	"context"
	"net"
)

// Network takes the place of package net.
type Network interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

type (
	key       struct{}
	answering struct{}
)

// Answer returns a context of what a server asks for, and waits for.
func Answer(ctx context.Context) context.Context { return context.WithValue(ctx, answering{}, true) }

// Answering reports whether a request is made to answer another one, which [Answer] says.
func Answering(ctx context.Context) bool { return ctx.Value(answering{}) != nil }

// With returns a context of what runs on a network.
func With(ctx context.Context, n Network) context.Context { return context.WithValue(ctx, key{}, n) }

// Listen listens for TCP connections on the network of a context, or on that of the machine.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if n, ok := ctx.Value(key{}).(Network); ok {
		return n.Listen(ctx, address)
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// Dial connects to an address. It has the form of net.Dialer's DialContext.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n, ok := ctx.Value(key{}).(Network); ok {
		return n.Dial(ctx, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}
