package reconciletest

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

const (
	// writeTime is how long a write may take, and collectionTime how long the deletion of a collection may. A write
	// takes time only while webhooks are asked.
	writeTime      = 34 * time.Second
	collectionTime = time.Minute
	// freeRaces is how often a write is made again at once since somebody else was faster. After that it pauses each
	// time: in a bubble of testing/synctest, a webhook that writes the same object may take no time at all.
	freeRaces = 20
	racePause = time.Second
)

// errLate is the answer to a write that is not done when its time is over.
var errLate = apierrors.NewTimeoutError("request did not complete within requested timeout - context deadline exceeded",
	0)

// deadline is when the time of a request is over; the zero deadline never is. It is a time and no context: a context
// that is derived from that of a test outside of the bubble gives channels of the bubble to the outside.
type deadline time.Time

// deadlineOf is the deadline of a request that begins now. A write has one; its client may have asked for less time.
func deadlineOf(verb, timeout string) (deadline, error) {
	limit := writeTime
	switch verb {
	case "create", "update", "patch", "delete":
	case "deletecollection":
		limit = collectionTime
	default:
		return deadline{}, nil
	}
	if timeout != "" {
		asked, err := time.ParseDuration(timeout)
		if err != nil {
			return deadline{}, apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
		if asked > 0 {
			limit = min(limit, asked)
		}
	}
	return deadline(time.Now().Add(limit)), nil
}

// over reports whether the time has passed. From then on the request stores nothing.
func (d deadline) over() bool { return !time.Time(d).IsZero() && !time.Now().Before(time.Time(d)) }

// within returns a timeout, or what is left of the time, if that is less.
func (d deadline) within(timeout time.Duration) time.Duration {
	if time.Time(d).IsZero() {
		return timeout
	}
	return min(timeout, time.Until(time.Time(d)))
}

// answerInTime answers a request, or says that its time was over before the answer was there. Only conversions for
// field managers are not cut short: then it says so when they are done.
func answerInTime(s *Server, c *call) (*http.Response, error) {
	var err error
	if c.deadline, err = deadlineOf(c.Verb, c.query.Get("timeout")); err != nil {
		return nil, err
	}
	resp, err := s.answer(c)
	if !c.deadline.over() || isNotModelled(err) {
		return resp, err
	}
	if err == nil {
		resp.Body.Close()
	}
	return nil, errLate
}

// race makes a write, and makes it again when somebody else was faster, until its time is over. A real server has no
// other bound, for patches neither.
func race(c *call, write func() error) error {
	for races := 1; ; races++ {
		err := write()
		if !errors.Is(err, errRaced) {
			return err
		}
		if c.deadline.over() || races > freeRaces && !lifecycle.Sleep(c.ctx, racePause) {
			return errLate
		}
	}
}
