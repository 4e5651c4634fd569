package reconcile

import (
	"context"
	"net/http"

	"k8s.io/klog/v2"
)

// leading is the [writer] behind the ctx of ManagerOptions.WhileLeading. What these functions write no key waits for.
// It is in the handover: the ledgers of all controllers keep it like the writes of a key, until their caches show it.
type leading struct{ controllers []*Controller }

func (l leading) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, writerKey{}, l)
}

func (l leading) targetOf(_ context.Context, address string) (t target, followed bool) {
	for _, c := range l.controllers {
		if t, followed = c.ledger.follows(address); followed {
			return t, true
		}
	}
	return guessTarget(address), false
}

func (l leading) sends() {
	for _, c := range l.controllers {
		c.ledger.sends(leadingOwner)
	}
}

func (l leading) answered() {
	for _, c := range l.controllers {
		c.ledger.answered(leadingOwner)
	}
}

func (l leading) wrote(ctx context.Context, w write) {
	for _, c := range l.controllers {
		c.ledger.wrote(klog.FromContext(ctx), leadingOwner, w)
	}
}

func (l leading) lostAnswer(ctx context.Context, t target) {
	for _, c := range l.controllers {
		c.ledger.lostAnswer(klog.FromContext(ctx), leadingOwner, t)
	}
}

func (l leading) wroteUnversioned(t target) {
	for _, c := range l.controllers {
		c.ledger.wroteUnversioned(t)
	}
}

// Only runs have a history.

func (leading) requestBegins(*http.Request) {}
func (leading) requestEnds(*http.Response)  {}

func (leading) recordWrite(req *http.Request, to target) (WriteRecord, *http.Request) {
	return WriteRecord{Verb: verbOfWrite(req, to)}, req
}

func (leading) addRequest(WriteRecord, *http.Response, error) {}
