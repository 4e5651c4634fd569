package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// client gets the JSON of the pages, those of a process or of a bundle.
type client struct {
	http    *http.Client
	address string // ends with a slash
	token   string
}

func newClient(o options, errOut io.Writer) (*client, error) {
	c := &client{http: &http.Client{Timeout: 30 * time.Second}, address: strings.TrimSuffix(o.address, "/") + "/"}
	if !strings.Contains(c.address, "://") {
		c.address = "http://" + c.address
	}
	if o.token != "" {
		text, err := os.ReadFile(o.token)
		if err != nil {
			return nil, fmt.Errorf("-token-file: %w", err)
		}
		c.token = strings.TrimSpace(string(text))
	}
	if o.bundle != "" {
		b, err := readBundle(o.bundle, errOut)
		if err != nil {
			return nil, err
		}
		c.address, c.http.Transport = "http://localhost/", inProcess{b.Handler()}
	}
	return c, nil
}

// inProcess is a transport to a handler in this process.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	here := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	w := &answer{header: make(http.Header), code: http.StatusOK}
	req = req.WithContext(context.WithValue(req.Context(), http.LocalAddrContextKey, net.Addr(here)))
	req.Host = req.URL.Host
	p.handler.ServeHTTP(w, req)
	return &http.Response{StatusCode: w.code, Status: http.StatusText(w.code), Header: w.header,
		Body: io.NopCloser(&w.body), Request: req}, nil
}

// answer is an answer that is being written.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header                  { return a.header }
func (a *answer) WriteHeader(code int)                 { a.code = code }
func (a *answer) Write(text []byte) (n int, err error) { return a.body.Write(text) }

// maxAnswer is the longest answer, in bytes, that is read.
const maxAnswer = 64 << 20

// get reads the JSON of a page.
func (c *client) get(ctx context.Context, page string, query url.Values, to any) error {
	address := c.address + page + ".json?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("-address: %w", err)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("%w (is kubectl port-forward running? see -address)", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Error string }
		if json.Unmarshal(text, &problem) != nil || problem.Error == "" {
			problem.Error = strings.TrimSpace(string(text[:min(len(text), 500)]))
		}
		return fmt.Errorf("%s: %s: %s", c.address, plain(resp.Status), plain(problem.Error))
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s answers, but not as the pages of reconcile/inspect do: %w", address, err)
	}
	return nil
}

// keysOf returns what a controller knows of a key; if none is named, what those know that know the key at all, or the
// first if none does.
func (c *client) keysOf(ctx context.Context, controller string, key reconcile.Key) (all []status.Key,
	err error) {
	names := []string{controller}
	if controller == "" {
		var m status.Manager
		if err := c.get(ctx, "index", nil, &m); err != nil {
			return nil, err
		}
		names = nil
		for _, c := range m.Controllers {
			names = append(names, c.Name)
		}
	}
	var unknown []status.Key
	for _, name := range names {
		var k status.Key
		err = c.get(ctx, "key", url.Values{"controller": {name}, "namespace": {key.Namespace}, "name": {key.Name}}, &k)
		switch {
		case err != nil:
		case k.State == status.KeyUnknown:
			unknown = append(unknown, k)
		default:
			all = append(all, k)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(unknown) > 0:
		return unknown[:1], nil
	case err == nil:
		err = fmt.Errorf("%s has no controllers", c.address)
	}
	return nil, err
}

// urgentKeys is how many keys of a controller top shows.
const urgentKeys = 10

// urgent returns the first keys of a controller that are neither settled nor scheduled.
func (c *client) urgent(ctx context.Context, controller string) (keys []status.KeySummary, err error) {
	var l struct{ Keys []status.KeySummary }
	if err := c.get(ctx, "keys", url.Values{"controller": {controller}}, &l); err != nil {
		return nil, err
	}
	for _, k := range l.Keys {
		switch k.State {
		case status.KeySettled, status.KeyScheduled, status.KeyUnknown:
		default:
			keys = append(keys, k)
		}
	}
	return keys[:min(len(keys), urgentKeys)], nil
}
