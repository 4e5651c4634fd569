package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

// far is dial over a network on which each byte takes 5 ms.
func (r *replica) far(ctx context.Context, network, address string) (net.Conn, error) {
	server, err := r.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	client, wire := net.Pipe()
	carry := func(to, from net.Conn) {
		under := make(chan []byte, 1000) // a server that closes holds a lock, so its last bytes are taken at once
		go func() {
			defer to.Close()
			for sent := range under {
				time.Sleep(5 * time.Millisecond)
				_, _ = to.Write(sent) // the other side may have closed
			}
		}()
		defer close(under)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if under <- buffer[:n]; err != nil {
				return
			}
		}
	}
	go carry(server, wire)
	go carry(wire, server)
	return client, nil
}

// client keeps an HTTP/1.1 connection alive, as API servers do for Services.
func client(bundle []byte, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 25,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host, NextProtos: []string{"http/1.1"}}}}
}

// post calls the webhook.
func post(c *http.Client, body []byte) (*http.Response, error) {
	resp, err := c.Post("https://"+host+"/validate", "application/json", bytes.NewReader(body))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return resp, err
}

// TestReplicasAreReplaced has 20 clients that keep their connections alive while replicas take over from each other. No
// call fails: none is sent on a connection that a replica is about to close.
func TestReplicasAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		var serves atomic.Pointer[replica] // where the Service leads to
		start := func() *replica {
			r := p.start(t, webhook.Lifetimes{})
			for r.Callable() != nil {
				time.Sleep(100 * time.Millisecond)
			}
			return r
		}
		serves.Store(start())
		body, bundle := review(t, admissionv1.Create, "{}", ""), p.known(0)[0]
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var calls, connections atomic.Int64
		for i := range uint64(20) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(1, i))
				c := client(bundle, func(ctx context.Context, network, address string) (net.Conn, error) {
					connections.Add(1)
					return serves.Load().far(ctx, network, address)
				})
				defer c.CloseIdleConnections()
				for ctx.Err() == nil {
					resp, err := post(c, body)
					if calls.Add(1); err != nil || resp.StatusCode != http.StatusOK || resp.ProtoMajor != 1 {
						t.Errorf("call %d: %v, %v", calls.Load(), resp, err)
					}
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				}
			})
		}
		for range 5 {
			was := serves.Swap(start())
			was.stop()
			require.NoError(t, <-was.ended)
		}
		stop()
		group.Wait()
		t.Logf("%d calls on %d connections", calls.Load(), connections.Load())
		require.Less(t, connections.Load(), calls.Load()/5, "they are kept alive")
		last := serves.Load()
		last.stop()
		require.NoError(t, <-last.ended)
	})
}

// TestKeptConnections: a connection that was kept alive is good for one more call when the server has been told to end,
// and so is a new one.
func TestKeptConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		r := p.start(t, webhook.Lifetimes{})
		time.Sleep(time.Minute)
		body, connections := review(t, admissionv1.Create, "{}", ""), 0
		c := client(p.known(0)[0], func(ctx context.Context, network, address string) (net.Conn, error) {
			connections++
			return r.far(ctx, network, address)
		})
		call := func(connection int, last bool) {
			resp, err := post(c, body)
			require.NoError(t, err)
			require.Equal(t, connection, connections)
			require.Equal(t, last, resp.Close)
		}
		call(1, false)
		call(1, false)
		underWay, rest := io.Pipe()
		closed := make(chan bool, 1)
		go func() {
			resp, err := c.Post("https://"+host+"/validate", "application/json", underWay)
			closed <- err == nil && resp.Close
			if err == nil {
				resp.Body.Close()
			}
		}()
		synctest.Wait()
		began := time.Now()
		r.stop()
		time.Sleep(time.Second)
		_, err := rest.Write(body)
		require.NoError(t, errors.Join(err, rest.Close()))
		require.True(t, <-closed, "it began before the end, and is answered after")
		time.Sleep(900 * time.Millisecond)
		call(2, true)
		call(3, true)
		require.NoError(t, <-r.ended)
		require.Less(t, time.Since(began), 3*time.Second)
		_, err = post(c, body)
		require.ErrorContains(t, err, "connection refused")
	})
}

// TestBodiesAreLimited: who sends much at once is refused, and calls are answered again when it is through.
func TestBodiesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		r := p.start(t, webhook.Lifetimes{})
		time.Sleep(time.Minute)
		call := func(length int) int {
			c := client(p.known(0)[0], r.far)
			defer c.CloseIdleConnections()
			body := append(review(t, admissionv1.Create, "{}", ""), bytes.Repeat([]byte(" "), length)...)
			resp, err := post(c, body)
			require.NoError(t, err)
			return resp.StatusCode
		}
		require.Equal(t, http.StatusOK, call(100<<10))
		var group sync.WaitGroup
		codes := make(chan int, 8)
		for range cap(codes) {
			group.Go(func() {
				c := client(p.known(0)[0], r.far)
				defer c.CloseIdleConnections()
				body, rest := io.Pipe()
				go func() {
					_, _ = rest.Write(make([]byte, webhook.MaxBody)) // it may be refused
					time.Sleep(10 * time.Second)
					rest.Close()
				}()
				resp, err := c.Post("https://"+host+"/validate", "application/json", body)
				if err == nil {
					codes <- resp.StatusCode
					resp.Body.Close()
				}
			})
		}
		time.Sleep(9 * time.Second)
		require.Equal(t, http.StatusServiceUnavailable, call(100<<10))
		require.Equal(t, http.StatusOK, call(0), "usual calls are small")
		group.Wait()
		require.Len(t, codes, cap(codes))
		for range cap(codes) {
			require.Equal(t, http.StatusBadRequest, <-codes, "all of it was read")
		}
		require.Equal(t, http.StatusOK, call(100<<10))
		r.stop()
		require.NoError(t, <-r.ended)
	})
}
