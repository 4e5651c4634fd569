package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// A Manager with health checks, one of which is the program's own.
func Example() {
	server, err := serve.New(serve.Options{Address: "127.0.0.1:0",
		ReadyChecks: map[string]func(*http.Request) error{
			"database": func(*http.Request) error { return errors.New("no connection yet") },
		}})
	if err != nil {
		log.Fatal(err)
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Serve: server.Run,
		Beside: map[string]func(context.Context) error{
			"work": func(ctx context.Context) error { <-ctx.Done(); return nil },
		}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	for server.Address() == "" {
		time.Sleep(time.Millisecond)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		resp, err := http.Get("http://" + server.Address() + path)
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n%s", path, resp.Status, text)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// /healthz: 200 OK
	// ok
	// /readyz: 503 Service Unavailable
	// database: no connection yet
	// <nil>
}
