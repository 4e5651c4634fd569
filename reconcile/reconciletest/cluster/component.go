package cluster

import "context"

// Component is a part of a cluster that a test can stop, kill and restart.
type Component string

// The components of a cluster.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "apiserver"
	ControllerManager Component = "controller-manager"
	Node              Component = "node"
)

// Stop freezes a component (SIGSTOP): it keeps its connections and answers no request.
func (c *Cluster) Stop(ctx context.Context, component Component) error {
	return c.order(ctx, "stop", string(component))
}

// Continue undoes [Cluster.Stop].
func (c *Cluster) Continue(ctx context.Context, component Component) error {
	return c.order(ctx, "continue", string(component))
}

// Kill ends a component at once (SIGKILL, stopped or not). It stays away until [Cluster.Restart].
func (c *Cluster) Kill(ctx context.Context, component Component) error {
	return c.order(ctx, "kill", string(component))
}

// Terminate asks a component to end (SIGTERM) and returns when it has.
func (c *Cluster) Terminate(ctx context.Context, component Component) error {
	return c.order(ctx, "terminate", string(component))
}

// Restart starts a component again, on the same port with the same data, and waits until it is ready. If it still runs,
// it is killed first.
func (c *Cluster) Restart(ctx context.Context, component Component) error {
	if err := c.order(ctx, "restart", string(component)); err != nil {
		return err
	}
	if component == Node {
		return c.nodeReady(ctx)
	}
	return c.order(ctx, "ready", string(component))
}

// Ready waits until the whole control plane is ready.
func (c *Cluster) Ready(ctx context.Context) error { return c.order(ctx, "ready", "") }

func (c *Cluster) order(ctx context.Context, op, name string) error {
	_, err := c.supervisor.call(ctx, request{Op: op, Name: name})
	return err
}
