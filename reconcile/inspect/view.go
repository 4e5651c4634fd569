package inspect

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"
)

//go:embed page
var files embed.FS

var templates = template.Must(template.New("").Funcs(functions).ParseFS(files, "page/*.html"))

// assets are what the pages load.
var assets = map[string]asset{
	"style.css": newAsset("style.css", "text/css; charset=utf-8"),
	"live.js":   newAsset("live.js", "text/javascript; charset=utf-8"),
	"icon.svg":  newAsset("icon.svg", "image/svg+xml"),
}

// asset is a file that does not change while the process runs.
type asset struct {
	text        []byte
	contentType string
}

func newAsset(name, contentType string) asset {
	text, err := files.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return asset{text, contentType}
}

func (a asset) serve(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", a.contentType)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(a.text))
}

// view is the part of a page that belongs to its subject.
type view struct {
	title, controller string // controller is empty for the overview
	template          string
	body              any    // for the template
	data              any    // for JSON
	filter            any    // what stands above the part that is followed live, or nil
	problem           string // why there is no such page
}

// view returns what a page shows. status is 200, or 404 with a problem.
func (h *handler) view(ctx context.Context, from source, name string, query url.Values) (v view, status int) {
	switch name {
	case "", "index":
		v = overviewOf(from.status())
	case "keys":
		v = keysView(ctx, from, query)
	case "key":
		v = h.keyView(ctx, from, query)
	default:
		v = view{problem: "There is no such page."}
	}
	if v.problem != "" {
		return v, http.StatusNotFound
	}
	return v, http.StatusOK
}

// body returns the part of a page that is followed live.
func (v view) html() (template.HTML, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, v.template, v.body); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil // a template has made it
}

// frame is what the pages have in common.
type frame struct {
	Title       string
	Controller  string
	Controllers []string
	Recorded    time.Time // zero: the pages show a process that runs
	Damage      error     // of the bundle, or nil
	Events      string    // where the page is followed live; empty: nowhere
	Filter      any
	Body        template.HTML
}

// frame returns the page around a view.
func (h *handler) frame(from source, v view, query url.Values) (f frame, err error) {
	f = frame{Title: v.title, Controller: v.controller, Controllers: from.controllers(), Filter: v.filter}
	if b, recorded := from.(*Bundle); recorded {
		f.Recorded, f.Damage = b.Created, b.damage
	} else if v.problem == "" {
		query.Set("page", v.template)
		f.Events = "events?" + query.Encode()
	}
	f.Body, err = v.html()
	return f, err
}

// writePage answers with a page.
func writePage(w http.ResponseWriter, f frame, status int) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "frame", f); err != nil {
		http.Error(w, "the page cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// isJSON reports whether a request asks for data in place of a page, and returns the name of the page.
func isJSON(req *http.Request, name string) (page string, ok bool) {
	page, ok = strings.CutSuffix(name, ".json")
	accept := req.Header.Get("Accept")
	return page, ok || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}
