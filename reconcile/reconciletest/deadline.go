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

// setDeadline says when the time of a write is over that begins now; its client may have asked for less. It is a time
// and no context: a context that is derived from that of a test outside of the bubble gives channels of the bubble to
// the outside.
func (c *call) setDeadline() error {
	limit := writeTime
	switch c.Verb {
	case "create", "update", "patch", "delete":
	case "deletecollection":
		limit = collectionTime
	default:
		return nil
	}
	if text := c.query.Get("timeout"); text != "" {
		asked, err := time.ParseDuration(text)
		if err != nil {
			return apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
		if asked > 0 {
			limit = min(limit, asked)
		}
	}
	c.deadline = time.Now().Add(limit)
	return nil
}

// late reports whether the time of the request is over. From then on it stores nothing.
func (c *call) late() bool { return !c.deadline.IsZero() && !time.Now().Before(c.deadline) }

// within returns a timeout, or what is left of the time of the request, if that is less.
func (c *call) within(timeout time.Duration) time.Duration {
	if c.deadline.IsZero() {
		return timeout
	}
	return min(timeout, time.Until(c.deadline))
}

// answerInTime answers a request, or says that its time was over before the answer was there. Only conversions for
// field managers are not cut short: then it says so when they are done.
func (s *Server) answerInTime(c *call) (*http.Response, error) {
	if err := c.setDeadline(); err != nil {
		return nil, err
	}
	resp, err := s.answer(c)
	if !c.late() || isNotModelled(err) {
		return resp, err
	}
	if err == nil {
		resp.Body.Close()
	}
	return nil, errLate
}

// race makes a write, and makes it again when somebody else was faster, until its time is over. A real server has no
// other bound, for patches neither.
func (c *call) race(write func() error) error {
	for races := 1; ; races++ {
		err := write()
		if !errors.Is(err, errRaced) {
			return err
		}
		if c.late() || races > freeRaces && !lifecycle.Sleep(c.ctx, racePause) {
			return errLate
		}
	}
}
