package reconcile

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// notHealthy returns why this process has to be restarted, if it has to. Like notReady it has no text of an error:
// package serve shows both to everybody.
func (m *Manager) notHealthy() (failing []string) {
	for _, c := range m.opts.Controllers {
		if err := c.alive(); err != nil {
			failing = append(failing, err.Error())
		}
	}
	if e, ok := m.opts.Elector.(interface{ Check(*http.Request) error }); ok {
		if err := e.Check(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/healthz"}}); err != nil {
			failing = append(failing, "the Elector's Check fails"+status.ErrorOf(err, false).Because())
		}
	}
	return failing
}

// notReady returns why this process is not ready, if it is not: a first list is missing, a cache does not follow its
// server, or the Elector reports that this process could not lead.
func (m *Manager) notReady() (failing []string) {
	if missing := m.ready.Load(); missing != nil {
		return []string{*missing}
	}
	for _, inf := range m.informers {
		if h := inf.Health(); h.State != informer.Live {
			failing = append(failing, fmt.Sprintf("informer %s: %s", inf.Name(), h.State)+
				debts.ReasonOf(h, false).Because())
		}
	}
	if e, ok := m.opts.Elector.(interface{ Ready() error }); ok {
		if err := e.Ready(); err != nil {
			failing = append(failing, "this process could not lead"+status.ErrorOf(err, false).Because())
		}
	}
	return failing
}
