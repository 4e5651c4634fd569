package network_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// A server that its clients cannot reach for a while. What was sent meanwhile arrives when the cut heals.
func ExampleNetwork_Cut() {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	n, err := network.New()
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	port, err := n.Listen("database", "127.0.0.1:0", server.Listener.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	address := "http://" + port.Address()

	heal := n.Cut(network.Outside, "database")
	_, err = (&http.Client{Timeout: 100 * time.Millisecond}).Get(address)
	fmt.Println(err != nil)
	heal()
	resp, err := http.Get(address)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	fmt.Println(resp.Status)
	// Output:
	// true
	// 200 OK
}
