package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestSearchFindsWhatEachStepLacks: reconciletest breaks the programs without being told how, by disturbing them at
// each of their requests. It finds nothing wrong with the last one.
func TestSearchFindsWhatEachStepLacks(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	broken := []string{
		"converges",                   // step 1 does not delete the pod that is too many
		"Always",                      // step 2 has a third pod
		"Always",                      // step 3 as well
		"Always",                      // step 4 as well, once requests are slow
		"repeats a write that failed", // step 5 leaves a pod whose deletion was refused
		"Always",                      // step 6 has a third pod if there are two processes
		"",
	}
	for i, rule := range broken {
		t.Run(fmt.Sprint("step", i+1), func(t *testing.T) {
			sc := twoPods(i + 1)
			if rule != "" {
				sc.Budget, sc.Findings = time.Minute, 1 // it takes less: the first finding ends the search
			}
			found := reconciletest.Search(t, sc)
			if rule == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			t.Log(found[0])
			require.Equal(t, rule, found[0].Rule)
		})
	}
}

// twoPods has a user who wants two pods, then makes a mistake, and then wants one pod.
func twoPods(step int) reconciletest.Scenario {
	return reconciletest.Scenario{
		Run: func(ctx context.Context, cfg *rest.Config) error {
			c, err := connect(cfg, "default")
			if err != nil {
				return err
			}
			return steps[step-1](ctx, c)
		},
		Server: reconciletest.Options{Roles: []string{"rbac.yaml"}},
		User:   reconciletest.ServiceAccount("default", "loop"),
		Steps:  reconciletest.ApplyYAML(asks("2"), asks("lots"), asks("1")),
		Settled: func(s *reconciletest.Server) error {
			if pods := reconciletest.List[*corev1.Pod](s, "pods", "default"); len(pods) != 1 {
				return fmt.Errorf("there are %d pods", len(pods))
			}
			return nil
		},
		Always: func(_ reconciletest.Write, s *reconciletest.Server) error {
			if pods := reconciletest.List[*corev1.Pod](s, "pods", "default"); len(pods) > 2 {
				return fmt.Errorf("there are %d pods, and nobody has asked for more than two", len(pods))
			}
			return nil
		},
	}
}

func asks(pods string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: web, labels: {loop: ""}}
data: {pods: %q}
`, pods)
}
