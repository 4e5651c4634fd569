package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// host has the records that a program keeps outside of the cluster.
const host = "outside.example.com"

// records are the stand-in of a cloud, or of a driver for volumes: a record at each path, which PUT writes and DELETE
// removes. GET of a path that ends in a slash lists the records below.
type records struct {
	mu sync.Mutex
	at map[string]json.RawMessage // guarded by mu
}

// outside makes the API, with some records.
func outside(at map[string]string) map[string]func() reconciletest.API {
	return map[string]func() reconciletest.API{host: func() reconciletest.API {
		r := &records{at: map[string]json.RawMessage{}}
		for path, record := range at {
			r.at[path] = json.RawMessage(record)
		}
		return r
	}}
}

func (r *records) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := req.URL.Path
	switch record, there := r.at[path]; {
	case req.Method == http.MethodPut:
		body, err := io.ReadAll(req.Body)
		if err != nil || !json.Valid(body) {
			http.Error(w, "no record", http.StatusBadRequest)
			return
		}
		r.at[path] = body
	case req.Method == http.MethodDelete:
		delete(r.at, path)
	case strings.HasSuffix(path, "/"):
		below := map[string]json.RawMessage{}
		for at, record := range r.at {
			if name, ok := strings.CutPrefix(at, path); ok {
				below[name] = record
			}
		}
		_ = json.NewEncoder(w).Encode(below) // the client has gone
	case there:
		_, _ = w.Write(record) // the client has gone
	default:
		http.Error(w, "no such record", http.StatusNotFound)
	}
}

func (r *records) State() any {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := map[string]any{}
	for path, record := range r.at {
		var of any
		if err := json.Unmarshal(record, &of); err != nil {
			panic(err)
		}
		state[path] = of
	}
	return state
}

// errNone is that there is no record at a path.
var errNone = errors.New("there is no such record")

// ask makes one request, with what in it, and reads the answer into answer, unless that is nil.
func ask(ctx context.Context, method, path string, what, answer any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "https://"+host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound:
		return errNone
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", resp.Status, text)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(text, answer)
}

// put is the step of somebody who writes a record, and remove that of one who removes it.
func put(path string, record any) reconciletest.Step {
	return reconciletest.StepFunc("put "+path, func(ctx context.Context, _ *rest.Config) error {
		return ask(ctx, http.MethodPut, path, record, nil)
	})
}

func remove(path string) reconciletest.Step {
	return reconciletest.StepFunc("remove "+path, func(ctx context.Context, _ *rest.Config) error {
		return ask(ctx, http.MethodDelete, path, nil, nil)
	})
}
