package plan_test

import (
	"context"
	"errors"
	"flag"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/program"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestAProgramWithoutTheFlagRunsAsItIs also has the flags of pflag, and a plan of no changes.
func TestAProgramWithoutTheFlagRunsAsItIs(t *testing.T) {
	w := newWorld(t, reconciletest.Options{})
	var onFork bool
	run := func(ctx context.Context, cfg *rest.Config) error {
		onFork = program.Planned(ctx)
		_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	}
	goFlags, pFlags := flag.NewFlagSet("go", flag.ContinueOnError), pflag.NewFlagSet("p", pflag.ContinueOnError)
	o := plan.RunOptions{Quiet: quiet}
	goPlanned, pPlanned := plan.Flag(goFlags, o), plan.Flag(pFlags, o)
	before := goPlanned(run) // the flags are parsed
	require.NoError(t, before(t.Context(), w.link.Config()))
	require.False(t, onFork)
	require.NoError(t, errors.Join(goFlags.Parse([]string{"-plan=markdown"}), pFlags.Parse([]string{"--plan", "json"})))
	for _, planned := range []plan.Func{goPlanned(run), pPlanned(run), before} {
		onFork = false
		require.NoError(t, planned(t.Context(), w.link.Config()), "there are no changes")
		require.True(t, onFork)
	}
	failed := errors.New("failed")
	err := goPlanned(func(context.Context, *rest.Config) error { return failed })(t.Context(), w.link.Config())
	require.ErrorIs(t, err, failed)
	require.NoError(t, goFlags.Parse([]string{"-plan=yaml"}))
	onFork = false
	require.ErrorContains(t, goPlanned(run)(t.Context(), w.link.Config()), "no format")
	require.False(t, onFork)
}
