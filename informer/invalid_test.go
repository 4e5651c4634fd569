package informer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// invalidCalls are the calls of HandlerOptions.Invalid, as the object's versions before and after, "-" for none.
type invalidCalls []string

func (v *invalidCalls) add(key Key, before, now *InvalidError) {
	version := func(e *InvalidError) string {
		if e == nil {
			return "-"
		}
		return e.Object.Labels["state"]
	}
	*v = append(*v, fmt.Sprintf("%s %s->%s", key.Name, version(before), version(now)))
}

func (v *invalidCalls) taken() []string {
	lines := *v
	*v = nil
	return lines
}

func inState(state string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "state", state) }
}

// Each change of what Invalid says is told, once, with the metadata; a list that repeats the state is no change.
func TestHandlersAreToldWhatIsInvalid(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			var seen, late invalidCalls
			_, err := inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Invalid: seen.add})
			require.NoError(t, err)
			p.Create(spoiled(pod("c")))
			run(t, inf)
			synctest.Wait()
			require.Equal(t, []string{"c -->"}, seen.taken(), "the first list has it")

			// A further state that cannot be taken.
			p.Update("default", "c", func(o *corev1.Pod) {
				inState("1")(o)
				o.Finalizers = []string{"example.com/x"}
				o.OwnerReferences = []metav1.OwnerReference{{UID: "owner"}}
				o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			})
			synctest.Wait()
			require.Equal(t, []string{"c ->1"}, seen.taken())
			var invalid *InvalidError
			require.ErrorAs(t, inf.Invalid(named("c")), &invalid)
			require.ErrorIs(t, invalid, errPicky)
			require.Equal(t, []string{"example.com/x"}, invalid.Object.Finalizers)
			require.EqualValues(t, "owner", invalid.Object.OwnerReferences[0].UID)
			require.Empty(t, invalid.Object.ManagedFields)

			// A list repeats it.
			p.Cut()
			p.Compact()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, seen.taken())
			require.Error(t, inf.Invalid(named("c")), "and the sweep has left it alone")

			// A handler that comes later, and one that panics.
			_, err = inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Inline: true, Invalid: late.add})
			require.NoError(t, err)
			require.Equal(t, []string{"c -->1"}, late.taken())
			_, err = inf.AddHandler(func(Event[*corev1.Pod]) {},
				HandlerOptions{Invalid: func(Key, *InvalidError, *InvalidError) { panic("no") }})
			require.NoError(t, err)

			// Valid again, and invalid again; replaced; deleted.
			p.Update("default", "c", func(o *corev1.Pod) { o.Annotations = nil })
			synctest.Wait()
			require.Equal(t, []string{"c 1->-"}, seen.taken())
			require.NoError(t, inf.Invalid(named("c")))
			p.Update("default", "c", func(o *corev1.Pod) { spoil(o); inState("2")(o) })
			synctest.Wait()
			require.Equal(t, []string{"c -->2"}, seen.taken())
			p.Delete("default", "c")
			synctest.Wait()
			require.Equal(t, []string{"c 2->-"}, seen.taken())

			// Gone while nobody looked.
			p.Update("default", "a", func(o *corev1.Pod) { spoil(o); inState("3")(o) })
			p.Create(spoiled(pod("d")))
			synctest.Wait()
			require.ElementsMatch(t, []string{"a -->3", "d -->"}, seen.taken())
			p.Cut()
			p.Delete("default", "a")
			p.Delete("default", "d")
			p.Compact()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.ElementsMatch(t, []string{"a 3->-", "d ->-"}, seen.taken())
			require.Zero(t, inf.Health().Rejected)
			require.Zero(t, inf.store.rejections.Load())

			healed(t, p, inf, told)

			// Taken out of scope.
			p.Create(spoiled(pod("e")))
			synctest.Wait()
			require.Equal(t, []string{"e -->"}, seen.taken())
			scope := inf.Scope()
			scope.LabelSelector = labels.SelectorFromSet(labels.Set{"state": "good"})
			require.NoError(t, inf.Rescope(scope))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, []string{"e ->-"}, seen.taken())
		})
}

// WaitUntil also looks again when an object becomes invalid, of which no handler is told.
func TestWaitUntilSeesWhatIsInvalid(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{Transform: (&picky{}).transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			time.AfterFunc(time.Second, func() { p.Update("default", "a", spoil) })
			require.NoError(t, inf.WaitUntil(t.Context(), func() bool {
				return errors.Is(inf.Invalid(named("a")), errPicky)
			}))
		})
}

// An object on which an index function panics is not taken, and looked at again when it changes.
func TestAnObjectThatAnIndexCannotTakeIsInvalid(t *testing.T) {
	bubble(t, Options[*corev1.Pod]{}, func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
		boom := errors.New("boom")
		first, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) { add(p.Name + p.Spec.NodeName) })
		require.NoError(t, err)
		picky, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) {
			if p.Spec.NodeName == "bad" {
				panic(boom)
			}
			add(p.Name)
		})
		require.NoError(t, err)
		v := &invalidCalls{}
		_, err = inf.AddHandler(func(Event[*corev1.Pod]) {}, HandlerOptions{Invalid: v.add})
		require.NoError(t, err)
		onNode := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
		run(t, inf)
		synctest.Wait()
		v.taken()

		bad := pod("c")
		onNode("bad")(bad)
		bad.Finalizers = []string{"example.com/x"}
		p.Create(bad)
		p.Update("default", "a", onNode("bad"))
		p.Create(pod("d"))
		synctest.Wait()
		require.Equal(t, []string{"a", "b", "d"}, names(inf), "a in its last good state")
		require.Len(t, slices.Collect(first.Get("a")), 1)
		require.Empty(t, slices.Collect(first.Get("abad")))
		require.Len(t, slices.Collect(picky.Get("a")), 1)
		require.Len(t, slices.Collect(picky.Get("d")), 1)
		for _, name := range []string{"a", "c"} {
			var invalid *InvalidError
			require.ErrorAs(t, inf.Invalid(named(name)), &invalid)
			require.ErrorIs(t, invalid, boom)
			require.Equal(t, name, invalid.Object.Name)
		}
		var invalid *InvalidError
		require.ErrorAs(t, inf.Invalid(named("c")), &invalid)
		require.Equal(t, []string{"example.com/x"}, invalid.Object.Finalizers)
		require.Len(t, v.taken(), 2)
		require.ErrorIs(t, picky.Err(), boom)
		require.Equal(t, Live, inf.Health().State)
		require.Equal(t, 2, inf.Health().Rejected)

		inf.Relist(metav1.NamespaceAll, nil)
		synctest.Wait()
		require.Empty(t, v.taken(), "the same states are no news")
		p.Update("default", "a", onNode("good"))
		p.Update("default", "c", onNode("good"))
		synctest.Wait()
		require.Len(t, v.taken(), 2)
		require.Len(t, slices.Collect(first.Get("agood")), 1)
		require.Len(t, slices.Collect(picky.Get("c")), 1)

		// An index that comes later may not take what is held already: that stays, and is told as invalid.
		late, err := AddIndex(inf, func(p *corev1.Pod, add func(string)) {
			if p.Name == "b" {
				panic(boom)
			}
			add(p.Name)
		})
		require.NoError(t, err)
		require.ErrorIs(t, inf.Invalid(named("b")), boom)
		require.Len(t, v.taken(), 1)
		require.Equal(t, []string{"a", "b", "c", "d"}, names(inf))
		require.Len(t, slices.Collect(late.Get("a")), 1)
		require.Empty(t, slices.Collect(late.Get("b")))
		p.Delete("default", "b")
		synctest.Wait()
		require.NoError(t, inf.Invalid(named("b")))
	})
}

func TestAnIndexDoesNotHideThatALaterStateIsInvalid(t *testing.T) {
	transform := &picky{}
	bubble(t, Options[*corev1.Pod]{Transform: transform.transform},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			run(t, inf)
			synctest.Wait()
			bad := p.Update("default", "a", spoil)
			synctest.Wait()
			_, err := AddIndex(inf, func(o *corev1.Pod, _ func(string)) {
				if o.Name == "a" {
					panic("an object that it does not expect")
				}
			})
			require.NoError(t, err)
			var invalid *InvalidError
			require.ErrorAs(t, inf.Invalid(named("a")), &invalid)
			require.Equal(t, bad.ResourceVersion, invalid.Object.ResourceVersion)
			require.ErrorIs(t, invalid, errPicky)
		})
}
