package reconciletest_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// These programs are wrong, and what Check does not compare, or does not judge, once hid that.

// replayed returns what Check says of a program about Greetings in one schedule.
func replayed(t *testing.T, run func(context.Context, *rest.Config) error, replay string, steps ...string) string {
	found := reconciletest.Search(t, reconciletest.Scenario{Run: run, Steps: reconciletest.ApplyYAML(steps...),
		Server: reconciletest.Options{Resources: []reconciletest.Resource{{GroupVersionResource: greetings,
			Kind: "Greeting", Status: true}}}, Replay: replay})
	if len(found) == 0 {
		return ""
	}
	return found[0].Rule
}

// TestARestartThatWritesWhatNoMaskRemoves changes something, though no snapshot shows it.
func TestARestartThatWritesWhatNoMaskRemoves(t *testing.T) {
	for name, run := range map[string]func(context.Context, *rest.Config) error{
		"a field manager for each start": func(ctx context.Context, cfg *rest.Config) error {
			manager := fmt.Sprint("greeter-", time.Now().UnixNano())
			return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				_, err := c.core.CoreV1().ConfigMaps("default").Patch(ctx, "a", types.ApplyPatchType,
					[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"y"}}`),
					metav1.PatchOptions{FieldManager: manager, Force: new(true)})
				return err
			})(ctx, cfg)
		},
		"conditions in another order": func(ctx context.Context, cfg *rest.Config) error {
			first := true
			return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				if !first {
					return nil
				}
				a, b := map[string]any{"type": "A", "status": "True"}, map[string]any{"type": "B", "status": "True"}
				want := []any{a, b}
				all, _, _ := unstructured.NestedSlice(g.Object, "status", "conditions")
				if len(all) == 2 && all[0].(map[string]any)["type"] == "A" {
					want = []any{b, a}
				}
				err := setStatus(ctx, c, g, map[string]any{"conditions": want})
				first = err != nil
				return err
			})(ctx, cfg)
		},
	} {
		require.Equal(t, "is idempotent", replayed(t, run, "v1 seed=0 steps=1: ", greeting("hello")), name)
	}
}

// TestANamespaceThatTheProgramKeeps is no object that others keep: the program wants to write into it before it lets
// its object go.
func TestANamespaceThatTheProgramKeeps(t *testing.T) {
	run := func(ctx context.Context, cfg *rest.Config) error {
		maps, all := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("team"), dynamic.NewForConfigOrDie(cfg)
		in := all.Resource(greetings).Namespace("team")
		for ; ctx.Err() == nil; time.Sleep(10 * time.Second) {
			g, err := in.Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				continue
			}
			if g.GetDeletionTimestamp() == nil {
				g.SetFinalizers([]string{"example.com/greeter"})
			} else {
				bye := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bye"}}
				_, err := maps.Create(ctx, bye, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) {
					continue
				}
				g.SetFinalizers(nil)
			}
			_, _ = in.Update(ctx, g, metav1.UpdateOptions{}) // the next round tries again
		}
		return nil
	}
	for _, replay := range []string{"v1 seed=0 steps=1: namesake after step 1",
		"v1 seed=0 steps=1: namesake at once after step 1"} {
		require.Equal(t, "lets go of what was deleted", replayed(t, run, replay,
			"{apiVersion: v1, kind: Namespace, metadata: {name: team}}\n---\n"+
				"apiVersion: example.com/v1\nkind: Greeting\nmetadata: {name: a, namespace: team}\nspec: {text: hi}\n"))
	}
}

// TestWhatIsLeftHasItsOwnName: what has a generated one may not be taken for what an earlier step has left.
func TestWhatIsLeftHasItsOwnName(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		all, err := c.core.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for range map[string]int{"two": 2, "one": 1}[text] - len(all.Items) { // what is too many is forgotten
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
			if _, err := c.core.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, replay := range []string{"v1 seed=0 steps=2: cold start", "v1 seed=0 steps=2: down over step 1"} {
		require.Equal(t, "ends alike", replayed(t, run, replay, greeting("two"), greeting("one")))
	}
}

// TestAProgramMayGenerateNamesItself: this one is right.
func TestAProgramMayGenerateNamesItself(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		all, err := c.core.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) > 0 {
			return errors.Join(err)
		}
		var b [4]byte
		_, _ = rand.Read(b[:])
		_, err = c.core.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "a-", Name: "a-x" + hex.EncodeToString(b[:]),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Greeting", Name: "a",
				UID: g.GetUID()}}}}, metav1.CreateOptions{})
		return err
	})
	for _, replay := range []string{"v1 seed=0 steps=1: slow", "v1 seed=0 steps=1: delete configmaps in step 1"} {
		require.Empty(t, replayed(t, run, replay, greeting("hello")))
	}
}

// TestAPortThatAClientChoosesIsCompared, one among those that the server draws, too.
func TestAPortThatAClientChoosesIsCompared(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		port := map[string]int32{"old": 31000, "new": 31500}[text]
		_, err := c.core.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Name: "a", OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Greeting",
				Name: "a", UID: g.GetUID()}}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"a": "b"},
				Ports: []corev1.ServicePort{{Port: 80, NodePort: port}}}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // it is never brought up to date
		}
		return err
	})
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=2: cold start", greeting("old"), greeting("new")))
}

// TestWhatIsMadeOutsideBeforeTheFinalizer stays when a user deletes the object in between. Others have not made it.
func TestWhatIsMadeOutsideBeforeTheFinalizer(t *testing.T) {
	s := clouded(func(ctx context.Context, cfg *rest.Config) error {
		const bucket, finalizer = "https://cloud.example.com/buckets/photos", "example.com/bucket"
		maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		for ; ctx.Err() == nil; time.Sleep(5 * time.Second) {
			m, err := maps.Get(ctx, "photos", metav1.GetOptions{})
			switch {
			case err != nil:
				continue
			case m.DeletionTimestamp == nil && len(m.Finalizers) == 0:
				err, m.Finalizers = ask(ctx, http.MethodPut, bucket+"?owner=photos"), []string{finalizer}
			case m.DeletionTimestamp != nil:
				err, m.Finalizers = ask(ctx, http.MethodDelete, bucket), nil
			}
			if err == nil {
				_, _ = maps.Update(ctx, m, metav1.UpdateOptions{}) // the next round tries again
			}
		}
		return nil
	})
	s.Replay = "v1 seed=0 steps=2: next step at PUT cloud.example.com #1"
	require.Equal(t, "ends alike", first(t, s).Rule)
}

// TestALabelThatIsNeverBroughtUpToDate is no history: it says what there is.
func TestALabelThatIsNeverBroughtUpToDate(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		maps := c.core.CoreV1().ConfigMaps("default")
		m, err := maps.Get(ctx, "a", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(ctx, &corev1.ConfigMap{Data: map[string]string{"text": text},
				ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"text": text}}},
				metav1.CreateOptions{})
			return err
		}
		if err != nil || m.Data["text"] == text {
			return err
		}
		m.Data = map[string]string{"text": text} // and not the label
		_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		return err
	})
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=2: cold start", greeting("hello"),
		greeting("bye")))
}

// TestAShorterWayHasItsContents, too: this program takes a generation for the one of an object that is gone.
func TestAShorterWayHasItsContents(t *testing.T) {
	run := func(ctx context.Context, cfg *rest.Config) error {
		texts := map[string]string{}
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			name, maps := fmt.Sprintf("a-%d", g.GetGeneration()), c.core.CoreV1().ConfigMaps("default")
			if texts[name] == "" {
				texts[name], _, _ = unstructured.NestedString(g.Object, "spec", "text")
			}
			m := &corev1.ConfigMap{Data: map[string]string{"text": texts[name]}, ObjectMeta: metav1.ObjectMeta{
				Name: name}}
			if _, err := maps.Create(ctx, m, metav1.CreateOptions{}); ignoreThere(err) != nil {
				return err
			}
			return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{
				FieldSelector: "metadata.name!=" + name})
		})(ctx, cfg)
	}
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=3: namesake after step 3", greeting("hello"),
		greeting("bye"), greeting("hi")))
}

// TestWhatIsLeftOfTheObjectBefore is there in the run without disturbances as well, but on no shorter way.
func TestWhatIsLeftOfTheObjectBefore(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		m := &corev1.ConfigMap{Data: map[string]string{"text": text}, ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("a-%d", g.GetGeneration())}} // and no owner
		maps := c.core.CoreV1().ConfigMaps("default")
		_, err := maps.Create(ctx, m, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		}
		return errors.Join(err, setStatus(ctx, c, g, map[string]any{"latest": m.Name}))
	})
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=3: namesake after step 3", greeting("hello"),
		greeting("bye"), greeting("hi")))
}

// TestAProcessThatIsKilledMayLeaveNothing, whatever its Run returns then: it has not failed.
func TestAProcessThatIsKilledMayLeaveNothing(t *testing.T) {
	run := func(ctx context.Context, cfg *rest.Config) error {
		maps, result := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default"), make(chan error)
		all, err := maps.Watch(ctx, metav1.ListOptions{}) // so it has started
		if err != nil {
			return err
		}
		defer all.Stop()
		for ctx.Err() == nil {
			go func() {
				time.Sleep(time.Second)
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
				_, err := maps.Create(ctx, m, metav1.CreateOptions{})
				result <- err // nothing may wait for it any more
			}()
			select {
			case err := <-result:
				if ignoreThere(err) == nil {
					<-ctx.Done()
				}
			case <-ctx.Done():
			}
		}
		return errors.New("stopped")
	}
	require.Equal(t, "leaves no goroutine behind", replayed(t, run,
		"v1 seed=0 steps=1: crash before create configmaps #1", greeting("hello")))
}

// TestWhatUsersHaveNamedIsNotDrawn by a program whose names look so: this one never uses another one of theirs.
func TestWhatUsersHaveNamedIsNotDrawn(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		name, _, _ := unstructured.NestedString(g.Object, "status", "made")
		if name == "" {
			name = "a-" + uuid.NewString()[:4]
			if err := setStatus(ctx, c, g, map[string]any{"made": name}); err != nil {
				return err
			}
		}
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		_, err := c.core.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{Data: map[string]string{
			"uses": text}, ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return ignoreThere(err)
	})
	users := "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a-blue}, data: {of: users}}\n" +
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a-gold}, data: {of: users}}\n"
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=2: cold start", greeting("a-blue")+users,
		greeting("a-gold")))
}

// TestWhatIsLeftInPlaceOfAnotherIsOne for one: a program that keeps the last two, and does not try a deletion again,
// has three in the end.
func TestWhatIsLeftInPlaceOfAnotherIsOne(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a-"+text, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		if err := makeMap(ctx, c, g, "a-"+text); err != nil || text != "hi" {
			return err
		}
		_ = c.core.CoreV1().ConfigMaps("default").Delete(ctx, "a-hello", metav1.DeleteOptions{}) // whatever comes of it
		return nil
	})
	require.Equal(t, "repeats a write that failed", replayed(t, run, "v1 seed=0 steps=3: 500 to delete configmaps #1",
		greeting("hello"), greeting("bye"), greeting("hi")))
}

// TestAStartLeavesNoMoreGoroutinesThanBefore where more happens, or something goes wrong: one for each object that the
// process has seen, or one more for each error, is a leak.
func TestAStartLeavesNoMoreGoroutinesThanBefore(t *testing.T) {
	forEachObject := func(ctx context.Context, cfg *rest.Config) error {
		seen := map[types.UID]bool{}
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			if !seen[g.GetUID()] {
				waitForNothing()
			}
			seen[g.GetUID()] = true
			return right(ctx, g, c)
		})(ctx, cfg)
	}
	forEachError := func(ctx context.Context, cfg *rest.Config) error {
		waitForNothing()
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			err := right(ctx, g, c)
			if apierrors.IsInternalError(err) {
				waitForNothing()
			}
			return err
		})(ctx, cfg)
	}
	require.Equal(t, "leaves no goroutine behind", replayed(t, forEachObject,
		"v1 seed=0 steps=1: namesake after step 1", greeting("hello")))
	require.Equal(t, "leaves no goroutine behind", replayed(t, forEachError,
		"v1 seed=0 steps=1: 500 to create configmaps #1", greeting("hello")))
}

// TestWhatIsLeftInPlaceOfAnotherIsOfItsSort: this program keeps a log of each text, and one that starts anew does not
// know which settings it has to delete.
func TestWhatIsLeftInPlaceOfAnotherIsOfItsSort(t *testing.T) {
	run := func(ctx context.Context, cfg *rest.Config) error {
		before := ""
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
			if err := makeMap(ctx, c, g, "log-"+text); err != nil {
				return err
			}
			if err := makeMap(ctx, c, g, "settings-"+text); err != nil || before == text {
				return err
			}
			if before != "" {
				err := c.core.CoreV1().ConfigMaps("default").Delete(ctx, "settings-"+before, metav1.DeleteOptions{})
				if ignoreGone(err) != nil {
					return err
				}
			}
			before = text
			return nil
		})(ctx, cfg)
	}
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=3: down over step 2", greeting("hello"),
		greeting("bye"), greeting("hi")))
}

// TestACountThatIsLost is no count of tries: this program counts the errors in a text only once.
func TestACountThatIsLost(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		return errors.Join(right(ctx, g, c), setStatus(ctx, c, g, map[string]any{
			"errors": int64(strings.Count(text, "e"))}))
	})
	require.Equal(t, "ends alike", replayed(t, run, "v1 seed=0 steps=1: crash after create configmaps #1",
		greeting("hello")))
}

// TestWhatHasNoEndYet is made anew by a right program when a third party deletes it: it may end later, or the program
// may only have seen it.
func TestWhatHasNoEndYet(t *testing.T) {
	for name, status := range map[string]map[string]any{
		"it ends later": {"phase": "Open", "endTime": "2100-01-01T00:00:00Z"},
		"it is seen":    {"conditions": []any{map[string]any{"type": "Processed", "status": "True"}}},
	} {
		require.Equal(t, "ends alike", replayed(t, plain(once(status)),
			"v1 seed=0 steps=1: delete configmaps in step 1", greeting("hello")), name)
	}
}

// TestAJobOfSomethingThatIsDoneRunsOnce: a program that does not watch its Job, and makes it anew when it starts, runs
// it again.
func TestAJobOfSomethingThatIsDoneRunsOnce(t *testing.T) {
	run := plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		job := &batchv1.Job{ObjectMeta: controlled(g), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "a", Image: "a"}}}}}}
		_, err := c.core.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
		return errors.Join(ignoreThere(err), complete(ctx, c, g))
	})
	require.Equal(t, "is idempotent", replayed(t, run, "v1 seed=0 steps=1: delete jobs in step 1", greeting("hello")))
}
