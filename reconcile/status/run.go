package status

import (
	"fmt"
	"time"
)

// Run is one call of Reconcile, or of Options.Invalid.
type Run struct {
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
	// Causes are what had named the key, as Causes reports it, and MoreCauses counts the changes besides.
	Causes     []Cause `json:"causes,omitempty"`
	MoreCauses int     `json:"moreCauses,omitempty"`
	// Waits are the times since the run before it in which the key was held back.
	Waits []Wait `json:"waits,omitempty"`
	// Writes are the requests to write, refused ones included, in their order, and MoreWrites counts those that came
	// after the first 16. Requests counts all requests.
	Writes     []Write `json:"writes,omitempty"`
	MoreWrites int     `json:"moreWrites,omitempty"`
	Requests   int     `json:"requests,omitempty"`
	// BeforeRequests is how much of the time no request was under way before the last one: it is long if the client has
	// a limit of its own.
	BeforeRequests time.Duration `json:"beforeRequests,omitempty"`
	// Request is the latest request of a run that goes on, as far as it has made one.
	Request *Request `json:"request,omitempty"`
	// Result is what a Recorder is told: success, requeue_after, error, retry_after, terminal, panic or stopped. It is
	// empty while the run goes on.
	Result string `json:"result,omitempty"`
	Error  *Error `json:"error,omitempty"`
	// Again is when the key is to come back by itself, as the run asked for or the rate limiter decided.
	Again time.Time `json:"again,omitzero"`
	// Invalid says that Reconcile was not called, since the object is invalid.
	Invalid bool `json:"invalid,omitempty"`
	// Where is the user's code in which the run has panicked or is stuck: function, file and line.
	Where string `json:"where,omitempty"`
	// Repeated counts the runs just before this one that, like this one, found nothing to do. They are not listed.
	Repeated int `json:"repeated,omitempty"`
	// Forgotten counts the runs after this one that failed as well, and are not listed: the first run of a row of
	// failures stays, as it has the cause.
	Forgotten int `json:"forgotten,omitempty"`
}

// The default limit of a client of client-go, after a burst of 10 requests, is 5 a second.
const limitedIdle, limitedRequests = 2 * time.Second, 10

// LooksLimited reports whether the run has the pace of a client with a limit of its own: it has spent two seconds, and
// four fifths of its time, before its requests, of which there were ten at least. Nothing else shows such a limit.
func (r *Run) LooksLimited() bool {
	return r.Requests >= limitedRequests && r.BeforeRequests >= max(limitedIdle, r.Took*4/5)
}

// Cause is one reason why a key is reconciled: a source has named it because of an object.
type Cause struct {
	// Source is the function that made the source, and what it was given: "Owns pods", "WatchesChan webhook"; or
	// "Enqueue".
	Source string `json:"source"`
	// Namespace and Name are those of the object that has changed, in its ResourceVersion after the latest of the
	// changes. All three are empty if it was no object.
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Count is how many changes have named the key, and First and Last when.
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

func (c Cause) String() string {
	s := c.Source
	if c.Namespace != "" || c.Name != "" {
		s += " " + c.Namespace + "/" + c.Name
	}
	if c.ResourceVersion != "" {
		s += "@" + c.ResourceVersion
	}
	if c.Count > 1 {
		s += fmt.Sprintf(" (%d times)", c.Count)
	}
	return s
}

// Wait is a time in which a key was held back.
type Wait struct {
	For  WaitReason `json:"for"`
	From time.Time  `json:"from"`
	To   time.Time  `json:"to,omitzero"` // zero: it goes on
	// Of WaitQueue, the priority and the group.
	Priority int    `json:"priority,omitempty"`
	Group    string `json:"group,omitempty"`
	// Of WaitParked, up to four of the debts that the key had when it was parked, and how many more.
	Debts     []Debt `json:"debts,omitempty"`
	MoreDebts int    `json:"moreDebts,omitempty"`
}

// WaitReason is what a key waited for.
type WaitReason string

const (
	WaitQueue   WaitReason = "queue"   // a worker
	WaitParked  WaitReason = "parked"  // a cache
	WaitHotLoop WaitReason = "hotLoop" // the end of the rest of a key in a hot loop
	WaitBackoff WaitReason = "backoff" // the delay after a failure
	WaitRequeue WaitReason = "requeue" // the RequeueAfter of the run before
	WaitPaused  WaitReason = "paused"  // Resume
)
