package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// apiServer is the end that the operators reach the API server at. The test and the nodes reach it by another way.
const apiServer network.End = "apiserver"

// wired is a stage in which a network connects members, operators and the API server. The operators are processes of
// their own.
type wired struct {
	*real
	net       *network.Network
	journals  []string
	starting  sync.Mutex         // guards operators
	operators []*cluster.Process // the latest process of each
}

// newWired starts it, with processes of the operator that have the rights of the role. One of them leads.
func newWired(t *testing.T, nodes, operators int, versions ...string) *wired {
	net, err := network.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, net.Close()) })
	w := &wired{real: newStage(t, net, nodes, versions...), net: net}
	kubeconfig := w.kubeconfig()
	binary, err := os.Executable()
	require.NoError(t, err)
	for i := range operators {
		path := filepath.Join(t.TempDir(), "journal")
		command := cluster.Command{Name: string(w.operator(i)), Path: binary,
			Env: []string{"KUBECONFIG=" + kubeconfig, journalFile + "=" + path}}
		process, err := net.Start(w.operator(i), func() (*cluster.Process, error) {
			return w.cluster.Run(t.Context(), command)
		})
		require.NoError(t, err)
		w.operators, w.journals = append(w.operators, process), append(w.journals, path)
	}
	t.Cleanup(func() {
		for _, process := range w.operators {
			if t.Failed() {
				out, _ := os.ReadFile(process.Log)
				t.Logf("%s ends with:\n%s", process.Name, out[max(0, len(out)-3000):])
			}
		}
	})
	return w
}

// kubeconfig returns a file for operators, whose requests go through the network.
func (w *wired) kubeconfig() string {
	server, err := url.Parse(w.cluster.Config().Host)
	require.NoError(w, err)
	port, err := w.net.Listen(apiServer, "127.0.0.1:0", server.Host)
	require.NoError(w, err)
	config, err := clientcmd.LoadFromFile(w.cluster.Kubeconfig())
	require.NoError(w, err)
	for _, user := range config.AuthInfos {
		user.Impersonate = account
	}
	for _, c := range config.Clusters {
		c.Server = "https://" + port.Address()
	}
	path := filepath.Join(w.TempDir(), "kubeconfig")
	require.NoError(w, clientcmd.WriteToFile(*config, path))
	return path
}

// restart kills an operator if it runs, and starts it again.
func (w *wired) restart(ctx context.Context, i int) error {
	w.starting.Lock()
	defer w.starting.Unlock()
	return w.restartLocked(ctx, i)
}

func (w *wired) restartLocked(ctx context.Context, i int) error {
	process, err := w.net.Start(w.operator(i), func() (*cluster.Process, error) { return w.operators[i].Restart(ctx) })
	if err == nil {
		w.operators[i] = process
	}
	return err
}

// keep starts operators again that have ended, as one does that has lost its Lease, until ctx ends.
func (w *wired) keep(ctx context.Context) {
	for ctx.Err() == nil {
		w.starting.Lock()
		for i, process := range w.operators {
			select {
			case <-process.Ended():
				if err := w.restartLocked(ctx, i); err != nil {
					w.Logf("%s has ended, and does not start again: %v", process.Name, err)
				}
			default:
			}
		}
		w.starting.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (w *wired) operator(i int) network.End { return network.End(fmt.Sprintf("operator-%d", i)) }

func (w *wired) pod(member string) network.End { return network.Pod(w.key(member)) }

// deeds are all that the operators have asked etcd for, one operator after the other.
func (w *wired) deeds() (deeds []deed) {
	for _, path := range w.journals {
		deeds = append(deeds, readJournal(w.T, path)...)
	}
	return deeds
}

// apart cuts both directions between one end and others.
func (w *wired) apart(end network.End, others ...network.End) (heal func()) {
	there, back := w.oneWay([]network.End{end}, others), w.oneWay(others, []network.End{end})
	return func() { there(); back() }
}

// oneWay cuts the direction from each of some ends to each of others.
func (w *wired) oneWay(from, to []network.End) (heal func()) {
	var heals []func()
	for _, from := range from {
		for _, to := range to {
			heals = append(heals, w.net.Cut(from, to))
		}
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}
