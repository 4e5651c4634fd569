package reconcile

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
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

func (l leading) debtor() debtor {
	d := debtor{owner: leadingOwner}
	for _, c := range l.controllers {
		d.ledgers = append(d.ledgers, c.ledger)
	}
	return d
}

// Only runs have a history.

func (leading) requestBegins(*http.Request) {}
func (leading) requestEnds(*http.Response)  {}

func (leading) remembers(types.UID, string, bool) {}

func (leading) recordWrite(req *http.Request, to target) (WriteRecord, *http.Request) {
	return WriteRecord{Verb: verbOfWrite(req, to)}, req
}

func (leading) addRequest(WriteRecord, *http.Response, error) {}
