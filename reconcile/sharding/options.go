package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/election"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// Options configures [Shards]. REST, Namespace and Name are required; the zero value of every other field is right for
// most users. [New] checks the whole of it and does not change it.
type Options struct {
	// REST says how to reach the API server and authenticate to it. The replica makes a transport and a rate limiter of
	// its own from a copy, as an elector does. Do not wrap REST with [Shards.Fence].
	REST *rest.Config
	// Namespace is where the Leases are; Name is that of the table. All replicas of one group have the same two.
	Namespace, Name string
	// Identity is the readable name of this replica; empty means the host name, which is the pod's name. Whoever comes
	// back under the same one gets, as far as possible, the same slices.
	Identity string
	// By returns what of a key decides to which slice it belongs; nil is [ByNamespace]. It must be the same in all
	// replicas, and return the same for the same key. [New] calls it with a few keys, to tell it from others: a replica
	// that has another one than the group is given no slices, and is not ready, until all others have stopped. So stop
	// all replicas before you change it; a difference that these keys do not show is not noticed.
	By func(key types.NamespacedName) string
	// ByKeyIn are namespaces that are cut by [ByKey], whatever By says: those that have so many of the keys that they
	// are too much for one slice. The controller says with it that the keys of such a namespace do not depend on each
	// other. It is a part of By: all replicas have the same, in any order, and one that has others is noticed. Caches
	// of what the objects of the keys own have [Owned] or [Of] then, and not [Keys].
	ByKeyIn []string
	// Slices is how many there are. It must be the same in all replicas, and counts when the table is made: the number
	// in the table is the one that holds. Zero means 256: with 50 replicas each has 5 or 6.
	Slices int
	// Prepare, if set, is called before this replica asks others for slices, which go on with their work meanwhile. The
	// caches of [Keys] and its like have the objects of the slices by then. It returns nil when the work of these
	// slices could begin at once; an error is logged, and it is called again. Slices whose owner has died, or has left
	// and could not wait any longer, come without.
	Prepare func(ctx context.Context, slices []int) error

	// LeaseDuration, RenewDeadline, RetryPeriod, StopGrace and DrainTimeout are as in package leaderelection, with the
	// same defaults: 15 s, 10 s, 2 s, 3 s and 30 s. Work of a slice that others have asked for has DrainTimeout to end,
	// too; then its context ends. A replica that leaves goes on with its slices while the others prepare for them: for
	// half of DrainTimeout, or LeaseDuration, at most.
	LeaseDuration, RenewDeadline, RetryPeriod, StopGrace, DrainTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	o.LeaseDuration = cmp.Or(o.LeaseDuration, 15*time.Second)
	o.RenewDeadline = cmp.Or(o.RenewDeadline, 10*time.Second)
	o.RetryPeriod = cmp.Or(o.RetryPeriod, 2*time.Second)
	o.StopGrace = cmp.Or(o.StopGrace, 3*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	o.Slices = cmp.Or(o.Slices, 256)
	if o.By == nil {
		o.By = ByNamespace
	}
	o.By, o.ByKeyIn = withKeysOf(o.By, o.ByKeyIn)
	if o.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("sharding: no Identity was given and the host has no name: %w", err)
		}
		o.Identity = host
	}
	return o, nil
}

// tryTimeout is that of one request: when the first renewal times out, a second one still fits before the deadline.
func (o Options) tryTimeout() time.Duration {
	return min(o.RetryPeriod+time.Second, (o.RenewDeadline-o.RetryPeriod)/2)
}

func (o Options) random() float64 { return lifecycle.Random(o.Namespace, o.Name, o.Identity) }

// prepareTimeout is for how long a replica that leaves goes on with its slices while others prepare for them.
func (o Options) prepareTimeout() time.Duration { return min(o.LeaseDuration, o.DrainTimeout/2) }

// validate returns all mistakes of Options that have their defaults, in one error.
func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("sharding: Options."+format, args...))
	}
	if o.REST == nil {
		bad("REST is nil")
	}
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		bad("Namespace %q: %s", o.Namespace, strings.Join(problems, ", "))
	}
	if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 {
		bad("Name %q: %s", o.Name, strings.Join(problems, ", "))
	}
	if len(o.Identity) > 200 || strings.ContainsFunc(o.Identity, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		bad("Identity must be printable and at most 200 bytes long")
	}
	for _, namespace := range o.ByKeyIn {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			bad("ByKeyIn %q: %s", namespace, strings.Join(problems, ", "))
		}
	}
	if o.Slices < 1 || o.Slices > 4096 {
		bad("Slices is %d; it is from 1 to 4096, or zero for 256", o.Slices)
	}
	for name, d := range map[string]time.Duration{"LeaseDuration": o.LeaseDuration, "RenewDeadline": o.RenewDeadline,
		"RetryPeriod": o.RetryPeriod, "StopGrace": o.StopGrace, "DrainTimeout": o.DrainTimeout} {
		if d < time.Millisecond {
			bad("%s is %v; it is a duration, or zero for the default", name, d)
		}
	}
	if o.LeaseDuration%time.Second != 0 || o.LeaseDuration > maxDuration {
		bad("LeaseDuration is %v; it is a whole number of seconds, at most %v", o.LeaseDuration, maxDuration)
	}
	if o.RetryPeriod >= o.RenewDeadline/2 {
		bad("RetryPeriod %v must be less than half of RenewDeadline %v, or one failed renewal ends the tenure",
			o.RetryPeriod, o.RenewDeadline)
	}
	if slow, fast := election.Spans(o.RenewDeadline, o.StopGrace, o.LeaseDuration); slow >= fast {
		bad("RenewDeadline %v + StopGrace %v can take %.4gs on a slow clock, and LeaseDuration %v only %.4gs on a "+
			"fast one: the next owner could start before this one has stopped", o.RenewDeadline, o.StopGrace, slow,
			o.LeaseDuration, fast)
	}
	return errors.Join(errs...)
}
