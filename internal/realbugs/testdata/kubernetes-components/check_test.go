// Package check runs controllers of Kubernetes by themselves that are in its other programs than
// kube-controller-manager: those of kube-apiserver and of the kubelet, and kube-scheduler, as their mains do.
package check

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	// The scheduler listens for a signal, and who is the first to do so in a process starts a goroutine that stays.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	os.Exit(m.Run())
}

// runs is a program, with its client. It returns when ctx has ended.
type runs func(ctx context.Context, client kubernetes.Interface) error

// check runs Check on a program. Nothing is switched off; no schedule begins after a minute.
func check(t *testing.T, r runs, s reconciletest.Scenario) {
	t.Helper()
	if s.Run == nil {
		s.Run = func(ctx context.Context, cfg *rest.Config) error {
			client, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				return err
			}
			return r(ctx, client)
		}
	}
	s.Server.Kinds = builtin.Kinds()
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}
