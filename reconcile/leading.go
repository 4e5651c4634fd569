package reconcile

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/reconcile/status"
)

// leading is the [writer] behind the ctx of ManagerOptions.WhileLeading. What these functions write no key waits for.
// It is in the handover.
type leading struct{ ledgers []*ledger }

func (l leading) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, writerKey{}, l)
}

func (l leading) debtor() debtor { return debtor{all: l.ledgers} }

// Only runs have a history.

func (leading) RequestBegins(*http.Request) {}
func (leading) RequestEnds(*http.Response)  {}

func (leading) Wrote(types.UID, string, bool) {}

func (leading) recordWrite(req *http.Request, to target) (status.Write, *http.Request) {
	return status.Write{Verb: verbOfWrite(req, to)}, req
}

func (leading) addRequest(status.Write, *http.Response, error) {}
