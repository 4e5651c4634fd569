package inspect

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// Options may be left zero.
type Options struct {
	// Manager is what the pages show. Nil: the one whose serve.Server has them among its Handlers.
	Manager *reconcile.Manager
	// Actions lets the pages reconcile a key at once, pause it and resume it. A request for that is a POST, and from a
	// browser it has to come from the page itself. With AccessReviews it needs the verb post on the path.
	Actions bool
	// Unguarded answers every request. It is for a server of yours that checks who asks. See the package's doc for what
	// is answered otherwise.
	Unguarded bool
}

// Handler returns the handler of the pages. Its pattern ends with a slash:
//
//	serve.Options{
//		Address:  ":8080",
//		Handlers: map[string]http.Handler{"/inspect/": inspect.Handler(inspect.Options{})},
//	}
func Handler(opts Options) http.Handler {
	return newHandler(opts, func(req *http.Request) source {
		m := opts.Manager
		if m == nil {
			m = serve.ManagerOf(req.Context())
		}
		if m == nil {
			return nil
		}
		return managerSource{m}
	})
}

// handler serves the pages of one source.
type handler struct {
	// Never changed.
	opts    Options
	source  func(*http.Request) source // nil: there is none
	origins *http.CrossOriginProtection
	checked http.Handler // the pages, for requests that may have them
	streams atomic.Int32 // that are open
}

func newHandler(opts Options, from func(*http.Request) source) *handler {
	h := &handler{opts: opts, source: from, origins: http.NewCrossOriginProtection()}
	h.checked = h.origins.Handler(http.HandlerFunc(h.route))
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; "+
		"connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if why := h.refuses(req); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	h.checked.ServeHTTP(w, req)
}

// refuses returns why a request is not answered, or "". A request passes that AccessReviews of package serve have let
// through, or that has come over the loopback interface, as those of kubectl port-forward do, and names it: a page of
// another site, whose name leads to 127.0.0.1, says its own name. A page of another site that names localhost
// cannot read the answer, but a bundle is work and a stream is held open: its GET is refused as its POST is.
func (h *handler) refuses(req *http.Request) string {
	if h.opts.Unguarded {
		return ""
	}
	if serve.Reviewed(req.Context()) {
		return ""
	}
	if address, ok := req.Context().Value(http.LocalAddrContextKey).(net.Addr); !ok || !isLoopback(address.String()) {
		return "these pages are for the loopback interface, which kubectl port-forward uses; for others set " +
			"serve.Options.AccessReviews"
	}
	if !isLoopback(req.Host) {
		return "these pages are for localhost, and the request names another host"
	}
	if h.origins.Check(&http.Request{Method: http.MethodPost, Header: req.Header, Host: req.Host}) != nil {
		return "a page of another site has asked for this: type the address, or open it from one of these pages"
	}
	return ""
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// below returns the part of the path below the pattern that the handler is registered for.
func below(req *http.Request) (rest string, ok bool) {
	_, pattern, found := strings.Cut(req.Pattern, " ")
	if !found {
		pattern = req.Pattern
	}
	if i := strings.Index(pattern, "/"); i >= 0 {
		pattern = pattern[i:]
	}
	if pattern != "" && !strings.HasSuffix(pattern, "/") {
		return "", false
	}
	if rest, ok = strings.CutPrefix(req.URL.Path, pattern); ok && pattern != "" {
		return rest, true
	}
	return strings.CutPrefix(req.URL.Path, "/") // by itself, or behind http.StripPrefix
}

// route answers a request that may be answered.
func (h *handler) route(w http.ResponseWriter, req *http.Request) {
	name, ok := below(req)
	if !ok {
		http.Error(w, "the pattern of inspect.Handler has to end with a slash", http.StatusInternalServerError)
		return
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead && name != "action" {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if file, ok := assets[name]; ok {
		file.serve(w, req)
		return
	}
	from := h.source(req)
	if from == nil {
		http.Error(w, "there is no Manager: serve this handler by serve.Options.Handlers, or set Options.Manager",
			http.StatusServiceUnavailable)
		return
	}
	switch name {
	case "action":
		h.act(w, req, from)
	case "bundle":
		if _, recorded := from.(*Bundle); recorded {
			http.Error(w, "this is a bundle already", http.StatusNotFound)
			return
		}
		h.download(w, req, from)
	case "events":
		h.stream(w, req, from)
	default:
		h.page(w, req, from, name)
	}
}

// page answers with a page, or with its data as JSON.
func (h *handler) page(w http.ResponseWriter, req *http.Request, from source, name string) {
	name, asJSON := isJSON(req, name)
	query := req.URL.Query()
	v, status := h.view(req.Context(), from, name, query)
	switch {
	case asJSON && v.problem != "":
		writeJSON(w, map[string]string{"error": v.problem}, status)
		return
	case asJSON:
		writeJSON(w, v.data, status)
		return
	case v.problem != "":
		v.title, v.template, v.body = "Not found", "notfound", v.problem
	}
	f, err := h.frame(from, v, query)
	if err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	writePage(w, f, status)
}

func writeJSON(w http.ResponseWriter, data any, status int) {
	text, err := json.Marshal(data)
	if err != nil {
		http.Error(w, "the data cannot be written as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
