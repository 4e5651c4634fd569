package leaderelection

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/election"
)

// Config configures an [Elector]. REST, Namespace and Name are required; the zero value of every other field is right
// for most users. [New] checks the whole of it and does not change it.
type Config struct {
	// REST says how to reach the API server and authenticate to it. The elector makes a transport and a rate limiter of
	// its own from a copy, so that no other traffic of the process delays a renewal; QPS, Burst, RateLimiter and
	// Timeout are not used. A REST.Transport, if set, is used as it is, and shared. Do not wrap REST with
	// [Elector.Fence].
	REST *rest.Config

	// Namespace and Name are the Lease's. All candidates for one job name the same Lease.
	Namespace, Name string

	// Identity is the readable part of this candidate's name in the Lease; empty means the host name, which is the
	// pod's name. A random part is always added, so two processes with one Identity are still two candidates.
	Identity string

	// LeaseDuration is how long a challenger sees an unchanged Lease before it acquires it, in whole seconds, as the
	// API records it. RenewDeadline + StopGrace on a clock that is 5 % slow must end before LeaseDuration on one that
	// is 5 % fast. Zero means 15 s.
	LeaseDuration time.Duration

	// RenewDeadline is the length of a tenure, counted from when the last acknowledged renewal was sent. Zero means
	// 10 s.
	RenewDeadline time.Duration

	// RetryPeriod is the time from one renewal to the next, and between the looks of a candidate that may not watch.
	// Zero means 2 s.
	RetryPeriod time.Duration

	// StopGrace is how long the lead function may take to return once its tenure is lost. After that Run returns
	// [ErrStuck], and the process should exit. Zero means 3 s.
	StopGrace time.Duration

	// DrainTimeout is how long the lead function may take to return once Run's context has ended. Renewals go on
	// meanwhile. Zero means 30 s.
	DrainTimeout time.Duration

	// MaxLeaseDuration bounds how long a record can make this candidate wait. A record may ask for more than
	// LeaseDuration: its holder has another configuration, or it was edited by mistake. No candidate's LeaseDuration
	// may be above it. Zero means 5 minutes, or LeaseDuration if that is longer.
	MaxLeaseDuration time.Duration

	// SkipFirstWait acquires a Lease that does not exist, or was never held, without waiting. By default a candidate
	// waits LeaseDuration there, once in the life of a Lease: an earlier one may have been deleted under a leader that
	// still works. A candidate that saw the Lease held before it was deleted waits in any case.
	SkipFirstWait bool

	// Events, if set, receives an event on the Lease when a tenure begins and when it ends. client-go's
	// record.EventRecorder fits. It is called without a lock; while it does not return, renewals and Run are late, but
	// no tenure lasts longer.
	Events EventRecorder
}

// EventRecorder is the one method of client-go's record.EventRecorder that is needed.
type EventRecorder interface {
	Eventf(object runtime.Object, eventType, reason, message string, args ...any)
}

// withDefaults returns c with its defaults.
func (c Config) withDefaults() Config {
	c.LeaseDuration = cmp.Or(c.LeaseDuration, 15*time.Second)
	c.RenewDeadline = cmp.Or(c.RenewDeadline, 10*time.Second)
	c.RetryPeriod = cmp.Or(c.RetryPeriod, 2*time.Second)
	c.StopGrace = cmp.Or(c.StopGrace, 3*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.MaxLeaseDuration = cmp.Or(c.MaxLeaseDuration, max(5*time.Minute, c.LeaseDuration))
	return c
}

// validate returns all mistakes of a Config that has its defaults, in one error.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("leaderelection: "+format, args...)) }

	if c.REST == nil {
		bad("Config.REST is nil")
	}
	if problems := validation.IsDNS1123Label(c.Namespace); len(problems) > 0 {
		bad("Namespace %q: %s", c.Namespace, strings.Join(problems, ", "))
	}
	if problems := validation.IsDNS1123Subdomain(c.Name); len(problems) > 0 {
		bad("Name %q: %s", c.Name, strings.Join(problems, ", "))
	}
	if len(c.Identity) > maxIdentity || strings.ContainsFunc(c.Identity, unprintable) {
		bad("Identity must be printable and at most %d bytes long", maxIdentity)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"LeaseDuration", c.LeaseDuration}, {"RenewDeadline", c.RenewDeadline}, {"RetryPeriod", c.RetryPeriod},
		{"StopGrace", c.StopGrace}, {"DrainTimeout", c.DrainTimeout}, {"MaxLeaseDuration", c.MaxLeaseDuration},
	} {
		if d.value < 0 {
			bad("%s is negative: %v", d.name, d.value)
		} else if d.value > 0 && d.value < time.Millisecond {
			bad("%s is only %v: is a unit missing?", d.name, d.value)
		}
	}
	if c.LeaseDuration%time.Second != 0 || c.LeaseDuration > math.MaxInt32*time.Second {
		bad("LeaseDuration %v must be a whole number of seconds, at most %d: a Lease records it so", c.LeaseDuration,
			math.MaxInt32)
	}
	if c.MaxLeaseDuration < c.LeaseDuration {
		bad("MaxLeaseDuration %v is below LeaseDuration %v", c.MaxLeaseDuration, c.LeaseDuration)
	}
	if c.RetryPeriod >= c.RenewDeadline/2 {
		bad("RetryPeriod %v must be less than half of RenewDeadline %v, or one failed renewal ends the tenure",
			c.RetryPeriod, c.RenewDeadline)
	}
	if slow, fast := election.Spans(c.RenewDeadline, c.StopGrace, c.LeaseDuration); slow >= fast {
		bad("RenewDeadline %v + StopGrace %v can take %.4gs on a slow clock, and LeaseDuration %v only %.4gs on a "+
			"fast one: the next leader could start before this one has stopped", c.RenewDeadline, c.StopGrace, slow,
			c.LeaseDuration, fast)
	}
	return errors.Join(errs...)
}

const (
	maxIdentity = 200
)

func unprintable(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }

func scale(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

// identity returns the holder's name for the Lease: the given one, or the host's, and a random part.
func (c Config) identity() (string, error) {
	name := c.Identity
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("leaderelection: no Identity was given and the host has no name: %w", err)
		}
		name = host
	}
	return name + "_" + string(uuid.NewUUID()), nil
}
