package leaderelection

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/election"
)

// client makes the requests of an election, all for one Lease. It retries nothing by itself: an elector has to know
// when each try was sent.
type client struct {
	rest            rest.Interface
	transport       *election.Transport
	namespace, name string
	sent            func() // called after each request
}

// ownRate is far above what an election needs. It bounds the damage of a bug in this package.
const ownRate, ownBurst = 10, 20

func newClient(cfg Config, sent func()) (*client, error) {
	requests, own, err := election.NewREST(cfg.REST, ownRate, ownBurst)
	if err != nil {
		return nil, fmt.Errorf("leaderelection: the client configuration is not usable: %w", err)
	}
	return &client{rest: requests, transport: own, namespace: cfg.Namespace, name: cfg.Name, sent: sent}, nil
}

// get returns nil and no error when the Lease does not exist: to an election that is an answer.
func (c *client) get(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := c.do(ctx, "get", c.rest.Get().Name(c.name))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

func (c *client) create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "create", c.rest.Post().Body(lease))
}

// update replaces the Lease if it still has the UID and the resourceVersion that lease was made from.
func (c *client) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "update", c.rest.Put().Name(c.name).Body(lease))
}

// dryRun asks whether the server would authorize an update. It changes nothing.
func (c *client) dryRun(ctx context.Context, lease *coordinationv1.Lease) error {
	_, err := c.do(ctx, "update", c.rest.Put().Name(c.name).Param("dryRun", metav1.DryRunAll).Body(lease))
	return err
}

func (c *client) do(ctx context.Context, verb string, request *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := request.Namespace(c.namespace).Resource(resource).MaxRetries(0).Do(ctx).Into(lease)
	return lease, c.done(verb, err)
}

// watch follows the one Lease. The server authorizes the field selector by name, so a Role may grant the watch for this
// Lease alone.
func (c *client) watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error) {
	w, err := c.rest.Get().Namespace(c.namespace).Resource(resource).MaxRetries(0).
		Param("watch", "true").
		Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()).
		Param("resourceVersion", resourceVersion).
		Param("timeoutSeconds", fmt.Sprint(int(timeout/time.Second))).
		Watch(ctx)
	return w, c.done("watch", err)
}

const resource = "leases"

// done is the end of every request. It counts the request, wraps its error, and after a failure gives the next try a
// connection of its own.
func (c *client) done(verb string, err error) error {
	c.sent()
	if err == nil {
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		c.transport.Fresh() // a refusal, too, may be due to the connection: its client certificate has expired
	}
	if apierrors.IsForbidden(err) {
		return &DeniedError{Verb: verb, Namespace: c.namespace, Name: c.name, Err: err}
	}
	return fmt.Errorf("%s leases.coordination.k8s.io %s/%s: %w", verb, c.namespace, c.name, err)
}
