package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
)

// Compact makes etcd forget all history up to now, so that a watch or a list that goes on from an older version gets
// the error 410 Gone. An API server still answers from what it keeps in memory, until it is restarted.
func (c *Cluster) Compact(ctx context.Context) error {
	socket := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.dir, "etcd", "client"))
	}}
	defer socket.CloseIdleConnections()
	call := func(method string, request, answer any) error {
		body, err := json.Marshal(request)
		if err != nil {
			return err
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/"+method, bytes.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: socket}).Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("etcd: %s: %s", method, resp.Status)
		}
		return json.NewDecoder(resp.Body).Decode(answer)
	}
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := call("range", map[string]any{"key": []byte("nothing")}, &now); err != nil {
		return fmt.Errorf("ask etcd for its revision: %w", err)
	}
	if err := call("compaction", map[string]any{"revision": now.Header.Revision, "physical": true},
		&struct{}{}); err != nil {
		return fmt.Errorf("compact etcd at revision %s: %w", now.Header.Revision, err)
	}
	return nil
}
