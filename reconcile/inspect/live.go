package inspect

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// managerSource is a Manager of this process.
type managerSource struct{ *reconcile.Manager }

func (m managerSource) now() time.Time { return time.Now() }

func (m managerSource) status() status.Manager { return m.Inspect() }

func (m managerSource) controllers() (names []string) {
	for _, c := range m.Controllers() {
		names = append(names, c.Name())
	}
	return names
}

// controller returns a controller by its name, or nil.
func (m managerSource) controller(name string) *reconcile.Controller {
	for _, c := range m.Controllers() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

func (m managerSource) keys(_ context.Context, controller string) (all []status.KeySummary, ok bool) {
	c := m.controller(controller)
	if c == nil {
		return nil, false
	}
	return c.InspectKeys(), true
}

func (m managerSource) key(_ context.Context, controller string, key reconcile.Key) (s status.Key, ok bool) {
	c := m.controller(controller)
	if c == nil {
		return s, false
	}
	return c.InspectKey(key), true
}

func (m managerSource) act(controller, action string, key reconcile.Key) bool {
	c := m.controller(controller)
	if c == nil {
		return false
	}
	switch action {
	case "reconcile":
		c.Enqueue(key)
	case "pause":
		c.Pause(key)
	case "resume":
		c.Resume(key)
	default:
		return false
	}
	return true
}

// actor is a source whose keys can be acted on.
type actor interface {
	// act does what a button says. It returns false if there is no such controller or no such button.
	act(controller, action string, key reconcile.Key) bool
}

// maxForm is the greatest length of a form, in bytes: two names of 253 bytes, in which each byte may take three, and
// the rest.
const maxForm = 8 << 10

// act answers the POST of a button, and leads back to the key's page. Cross-site requests do not come here.
func (h *handler) act(w http.ResponseWriter, req *http.Request, from source) {
	on, ok := from.(actor)
	switch {
	case req.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		http.Error(w, "only POST", http.StatusMethodNotAllowed)
		return
	case !h.opts.Actions || !ok:
		http.Error(w, "actions are off: see inspect.Options", http.StatusForbidden)
		return
	}
	req.Body = http.MaxBytesReader(w, req.Body, maxForm)
	if err := req.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	// What is in the address does not count: a link cannot act.
	controller, key := req.PostForm.Get("controller"), reconcile.Key{Namespace: req.PostForm.Get("namespace"),
		Name: req.PostForm.Get("name")}
	if key.Name == "" || !on.act(controller, req.PostForm.Get("do"), key) {
		http.Error(w, "there is no such controller or action", http.StatusBadRequest)
		return
	}
	w.Header().Set("Location", keyURL(controller, key.Namespace, key.Name))
	w.WriteHeader(http.StatusSeeOther)
}

// download answers with a bundle.
func (h *handler) download(w http.ResponseWriter, req *http.Request, from source) {
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Content-Disposition", "attachment; filename="+url.PathEscape(bundleName(from.now())))
	if req.Method == http.MethodHead {
		return
	}
	if err := writeBundle(req.Context(), w, from); err != nil {
		panic(http.ErrAbortHandler) // the connection breaks, so that the file is not taken for complete
	}
}
