package informer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

type podFacts struct {
	node  string
	ready bool
}

func factsOf(p *corev1.Pod) (podFacts, error) {
	if p.Name == "bad" {
		return podFacts{node: "never stored"}, errPicky
	}
	if p.Name == "worse" {
		panic(errPicky)
	}
	return podFacts{p.Spec.NodeName, p.Status.Phase == corev1.PodRunning}, nil
}

func TestProjectHoldsWhatAFunctionMakesOfTheObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newPodAPI()
		for _, name := range []string{"a", "bad", "worse"} {
			api.Create(pod(name))
		}
		facts, err := Project[*corev1.Pod](api, factsOf,
			Options[*corev1.Pod]{Transform: func(p *corev1.Pod) (*corev1.Pod, error) {
				p.Spec.NodeName = "node-of-" + p.Name
				return p, nil
			}})
		require.NoError(t, err)
		byNode, err := AddIndex(facts, func(f podFacts, add func(string)) { add(f.node) })
		require.NoError(t, err)
		var told []Event[podFacts]
		_, err = facts.AddHandler(func(e Event[podFacts]) { told = append(told, e) }, HandlerOptions{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- facts.Run(ctx) }()
		synctest.Wait()

		require.Equal(t, []podFacts{{"node-of-a", false}}, slices.Collect(facts.All()))
		require.ErrorIs(t, facts.Invalid(named("bad")), errPicky)
		require.ErrorIs(t, facts.Invalid(named("worse")), errPicky)
		api.Update("default", "a", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
		synctest.Wait()
		require.Equal(t, []podFacts{{"node-of-a", true}}, slices.Collect(byNode.Get("node-of-a")))
		live, ok, err := facts.Live(t.Context(), named("a"))
		require.NoError(t, err)
		require.True(t, ok)
		require.True(t, live.ready)
		api.Delete("default", "a")
		synctest.Wait()
		require.Len(t, told, 3)
		require.Equal(t, podFacts{"node-of-a", false}, told[1].Old)
		require.Equal(t, podFacts{"node-of-a", true}, told[1].New)
		require.Equal(t, Deleted, told[2].Type)
		require.Equal(t, "uid-1", string(told[2].UID), "what the pipeline needs is kept apart from the value")
		cancel()
		require.NoError(t, <-done)
	})
}

func TestProjectNeedsAFunction(t *testing.T) {
	_, err := Project[*corev1.Pod, podFacts](newPodAPI(), nil, Options[*corev1.Pod]{Name: "facts"})
	require.ErrorContains(t, err, "informer facts: Project: the function is nil")
	_, err = Project[*corev1.Pod](Client[*corev1.PodList](nil), factsOf, Options[*corev1.Pod]{})
	require.ErrorContains(t, err, "the client is nil")
	_, err = Project[*corev1.Secret](newPodAPI(), func(*corev1.Secret) (int, error) { return 0, nil },
		Options[*corev1.Secret]{})
	require.ErrorContains(t, err, "the client lists *v1.Pod")
}
