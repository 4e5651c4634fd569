package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/election"
	"github.com/thermostat-go/thermostat/internal/kube"
)

const (
	groupLabel      = "thermostat-go.github.io/shards"      // on every Lease of the group: the table's name
	tableAnnotation = "thermostat-go.github.io/shard-table" // what [table.encode] returns
)

// client makes the requests of one replica. It retries nothing by itself: a replica has to know when each try was sent.
type client struct {
	rest            rest.Interface
	transport       *election.Transport
	namespace, name string
	sent            func() // called after each request

	mu     sync.Mutex
	denied map[string]denial // guarded by mu: of each kind of request, if the last answer was that it may not be made
	recent time.Duration     // for how long a denial counts; not changed
}

// ownRate is far above what a replica needs. It bounds the damage of a bug in this package.
const ownRate, ownBurst = 10, 20

func newClient(o Options, sent func()) (*client, error) {
	requests, own, err := election.NewREST(o.REST, ownRate, ownBurst)
	if err != nil {
		return nil, fmt.Errorf("sharding: the client configuration is not usable: %w", err)
	}
	return &client{rest: requests, transport: own, namespace: o.Namespace, name: o.Name, sent: sent,
		denied: map[string]denial{}, recent: o.LeaseDuration}, nil
}

// list reads the table and all Leases of the group, as they are.
func (c *client) list(ctx context.Context) (*coordinationv1.LeaseList, error) {
	all := &coordinationv1.LeaseList{}
	err := c.rest.Get().Namespace(c.namespace).Resource("leases").MaxRetries(0).
		Param("labelSelector", c.selector()).Do(ctx).Into(all)
	return all, c.done("list", "", err)
}

func (c *client) selector() string { return groupLabel + "=" + c.name }

func (c *client) watch(ctx context.Context, resourceVersion string, timeout time.Duration) (watch.Interface, error) {
	w, err := c.rest.Get().Namespace(c.namespace).Resource("leases").MaxRetries(0).
		Param("watch", "true").
		Param("labelSelector", c.selector()).
		Param("resourceVersion", resourceVersion).
		Param("timeoutSeconds", fmt.Sprint(int(timeout/time.Second))).
		Watch(ctx)
	return w, c.done("watch", "", err)
}

// get returns nil and no error when the Lease does not exist: that is an answer.
func (c *client) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	lease, err := c.do(ctx, "get", name, c.rest.Get().Name(name))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

func (c *client) create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "create", lease.Name, c.rest.Post().Body(lease))
}

// update replaces the Lease if it still has the UID and the resourceVersion that lease was made from.
func (c *client) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, "update", lease.Name, c.rest.Put().Name(lease.Name).Body(lease))
}

// remove deletes the Lease if it is at this version; of any resourceVersion if at has none.
func (c *client) remove(ctx context.Context, name string, at version) error {
	uid := types.UID(at.uid)
	only := &metav1.Preconditions{UID: &uid}
	if at.resourceVersion != "" {
		only.ResourceVersion = &at.resourceVersion
	}
	options := &metav1.DeleteOptions{Preconditions: only,
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "DeleteOptions"}}
	err := c.rest.Delete().Name(name).Body(options).Namespace(c.namespace).Resource("leases").MaxRetries(0).Do(ctx).
		Error()
	return c.done("delete", name, err)
}

func (c *client) do(ctx context.Context, verb, name string, request *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := request.Namespace(c.namespace).Resource("leases").MaxRetries(0).Do(ctx).Into(lease)
	return lease, c.done(verb, name, err)
}

// done is the end of every request. It counts the request, wraps its error, and after a failure gives the next try a
// connection of its own.
func (c *client) done(verb, name string, err error) error {
	c.sent()
	if err != nil {
		err = fmt.Errorf("%s leases.coordination.k8s.io %s/%s: %w", verb, c.namespace, name, err)
	}
	c.noteDenied(verb, name, err)
	if err == nil {
		return nil
	}
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
		c.transport.Fresh()
	}
	return err
}

// noteDenied notes an answer that says whether this replica may make such requests, for the table or another Lease.
func (c *client) noteDenied(verb, name string, err error) {
	if name == c.name {
		verb += " table"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		c.denied[verb] = denial{err, time.Now()}
	case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		delete(c.denied, verb)
	}
}

// denial is an answer by which a request may not be made.
type denial struct {
	err error
	at  time.Time
}

// refused returns why some kind of request may not be made, or nil. What is needed is asked for again within seconds,
// so a denial that is old is of something that another replica has done in the meantime.
func (c *client) refused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(c.denied)) {
		if d := c.denied[kind]; time.Since(d.at) < c.recent {
			return d.err
		}
	}
	return nil
}

func versionOf(lease *coordinationv1.Lease) version {
	return version{string(lease.UID), lease.ResourceVersion}
}

// replicaLease is the Lease that a replica makes.
func replicaLease(o Options, name string, now time.Time) *coordinationv1.Lease {
	seconds := int32(o.LeaseDuration / time.Second)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: name,
			Labels: map[string]string{groupLabel: o.Name}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &o.Identity, LeaseDurationSeconds: &seconds,
			AcquireTime: &metav1.MicroTime{Time: now}, RenewTime: &metav1.MicroTime{Time: now}},
	}
}

// renewedLease is that Lease as its replica renews it. What others have added to its metadata stays.
func renewedLease(base *coordinationv1.Lease, o Options, now time.Time) *coordinationv1.Lease {
	lease := base.DeepCopy()
	own := replicaLease(o, base.Name, now)
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[groupLabel] = o.Name
	own.Spec.AcquireTime = base.Spec.AcquireTime
	lease.Spec = own.Spec
	return lease
}

// errOther says that the Lease of the table's name is somebody else's.
var errOther = errors.New("the Lease is not a table of shards")

// checkTable returns an error for a Lease that somebody holds, or has held, as a leader: then it has a duration, which
// that of a table never has. It is not for us to take: whoever holds it may be at work, and whoever held it waits to
// hold it again.
func checkTable(lease *coordinationv1.Lease) error {
	if lease.Spec.LeaseDurationSeconds == nil {
		return nil
	}
	holder := "nobody at present"
	if name := lease.Spec.HolderIdentity; name != nil && *name != "" {
		holder = fmt.Sprintf("%q", kube.Brief(*name))
	}
	return fmt.Errorf("sharding: %w, but an elector's, and is held by %s: %s/%s. Give the shards another Name, or "+
		"stop all who use the Lease, and delete it", errOther, holder, lease.Namespace, lease.Name)
}

// tableLease is the Lease that holds a table: base, if there is one, with the table in its place. Its holder is who has
// written it last, for people.
func tableLease(base *coordinationv1.Lease, o Options, t *table, writer string) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	if base != nil {
		lease = base.DeepCopy()
	}
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Labels[groupLabel], lease.Annotations[tableAnnotation] = o.Name, t.encode()
	lease.Spec.HolderIdentity = &writer
	return lease
}
