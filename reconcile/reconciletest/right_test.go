package reconciletest_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// greetFunc does what one Greeting asks for.
type greetFunc = func(ctx context.Context, g *unstructured.Unstructured, c clients) error

// unusual are programs without a mistake whose ends may differ all the same: by what they have seen on the way, by the
// time, or because nobody can undo what was done to them.
var unusual = map[string]struct {
	greet greetFunc
	steps []reconciletest.Step
}{
	"a status with a resourceVersion": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		if err := right(ctx, g, c); err != nil {
			return err
		}
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return setStatus(ctx, c, g, map[string]any{"synced": m.ResourceVersion})
	}},
	"one step, and a status with a resourceVersion": {steps: reconciletest.ApplyYAML(greeting("hello")),
		greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			if err := right(ctx, g, c); err != nil {
				return err
			}
			m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				return err
			}
			return setStatus(ctx, c, g, map[string]any{"synced": "v1-" + m.ResourceVersion})
		}},
	"an annotation of the last operation": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil || m.Data["text"] == text {
			return right(ctx, g, c)
		}
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, "last", "from "+m.Data["text"]+" to "+text)
		m.Data = map[string]string{"text": text}
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return err
	}},
	"a label that says what has been": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil || m.Data["text"] == text {
			return right(ctx, g, c)
		}
		m.Labels, m.Data = map[string]string{"before": m.Data["text"]}, map[string]string{"text": text}
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return err
	}, steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"))},
	"a label on what others have made": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "given", metav1.GetOptions{})
		if err != nil {
			return ignoreGone(err)
		}
		state := m.Labels["state"]
		switch {
		case text == "hello":
			state = "active"
		case state == "active":
			state = "reserve"
		case state == "":
			state = "pending"
		}
		if state == m.Labels["state"] {
			return nil
		}
		m.Labels = map[string]string{"state": state}
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return ignoreGone(err)
	}, steps: reconciletest.ApplyYAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: given, namespace: default}, "+
		"data: {a: b}}\n---\n"+greeting("hello"), greeting("bye"))},
	"a condition with a history": {greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		if err := right(ctx, g, c); err != nil {
			return err
		}
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		conditions, _, _ := unstructured.NestedSlice(g.Object, "status", "conditions")
		i := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Parted" })
		switch {
		case text == "bye" && i < 0:
			conditions = append(conditions, map[string]any{"type": "Parted", "status": "True"})
		case text == "bye":
			conditions[i] = map[string]any{"type": "Parted", "status": "True"}
		case i >= 0:
			conditions[i] = map[string]any{"type": "Parted", "status": "False", "reason": "CameBack"}
		}
		if !slices.ContainsFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "Ready" }) {
			conditions = append(conditions, map[string]any{"type": "Ready", "status": "True"})
		}
		return setStatus(ctx, c, g, map[string]any{"conditions": conditions})
	}},
	"what a user has made is given an owner": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "given", metav1.GetOptions{})
		if err != nil || len(m.OwnerReferences) > 0 {
			return ignoreGone(err)
		}
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Greeting", Name: g.GetName(),
			UID: g.GetUID()}}
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return ignoreGone(err)
	}, steps: append(reconciletest.ApplyYAML("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: given}\n---\n"+
		greeting("hello")), reconciletest.Delete("greetings.example.com", "default", "a"))},
	"what a user has applied is written anew, but for what is empty": {greet: func(ctx context.Context,
		g *unstructured.Unstructured, c clients) error {
		if g.GetAnnotations()["seen"] == "yes" {
			return nil
		}
		annotations := map[string]string{"seen": "yes"}
		maps.Copy(annotations, g.GetAnnotations())
		g.SetAnnotations(annotations)
		if loud, _, _ := unstructured.NestedBool(g.Object, "spec", "loud"); !loud {
			unstructured.RemoveNestedField(g.Object, "spec", "loud")
		}
		_, err := c.greetings.Namespace("default").Update(ctx, g, metav1.UpdateOptions{})
		return ignoreGone(err)
	}, steps: reconciletest.ApplyYAML(greeting("hello, loud: true"), greeting("hello, loud: false"))},
	"what is not asked for any more is kept": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		return makeMap(ctx, c, g, "a-"+text)
	}, steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"))},
	"one for each minute": {
		greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			for ctx.Err() == nil {
				if err := right(ctx, g, c); err != nil {
					return err
				}
				minute := time.Now().Unix() / 60
				if err := makeMap(ctx, c, g, fmt.Sprintf("a-%d", minute)); err != nil {
					return err
				}
				past, err := c.core.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, m := range past.Items {
					of := int64(0)
					if n, _ := fmt.Sscanf(m.Name, "a-%d", &of); n == 1 && of < minute-2 {
						if err := ignoreGone(c.core.CoreV1().ConfigMaps("default").Delete(ctx, m.Name,
							metav1.DeleteOptions{})); err != nil {
							return err
						}
					}
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(time.Unix(60*minute+60, 0))):
				}
				now, err := c.greetings.Namespace("default").Get(ctx, g.GetName(), metav1.GetOptions{})
				if err != nil {
					return ignoreGone(err)
				}
				g = now
			}
			return nil
		},
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"what belonged to something that is complete": {
		greet: once(map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}),
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"what belonged to something whose own status says so": {
		greet: once(map[string]any{"greetingStatus": "SUCCEEDED"}),
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"what belonged to something that has the time of its end": {
		greet: once(map[string]any{"phase": "Errored", "completionTime": "1999-12-31T05:00:00Z"}),
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"what belonged to something that is done": {
		greet: once(map[string]any{"phase": "Done"}),
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"the account of something that is complete, which nobody watches": {
		greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			account := &corev1.ServiceAccount{ObjectMeta: controlled(g)}
			_, err := c.core.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{})
			if err := ignoreThere(err); err != nil {
				return err
			}
			account, err = c.core.CoreV1().ServiceAccounts("default").Get(ctx, g.GetName(), metav1.GetOptions{})
			if err != nil || !metav1.IsControlledBy(account, g) {
				return errors.Join(err, errors.New("the one of a namesake is there"))
			}
			return complete(ctx, c, g)
		},
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"a status that keeps the last texts": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		history, _, _ := unstructured.NestedSlice(g.Object, "status", "history")
		if n := len(history); n > 0 && history[n-1].(map[string]any)["text"] == text {
			return nil
		}
		history = append(history, map[string]any{"text": text, "at": time.Now().UTC().Format(time.RFC3339)})
		return setStatus(ctx, c, g, map[string]any{"history": history[max(0, len(history)-2):]})
	}, steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"), greeting("hi"))},
	"the last two of what it has made are kept": {
		greet: keepsTwo,
		steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"), greeting("hi")),
	},
	"a password that is drawn once, and its digest": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		maps := c.core.CoreV1().ConfigMaps("default")
		m, err := maps.Get(ctx, "password", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			m, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "password"},
				Data: map[string]string{"password": rand.Text()}}, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(m.Data["password"])))
		return setStatus(ctx, c, g, map[string]any{"digest": digest})
	}},
	"what it has made stays when a user deletes what it was made for": {greet: func(ctx context.Context,
		g *unstructured.Unstructured, c clients) error {
		return makeMap(ctx, c, g, "kept")
	}, steps: append(reconciletest.ApplyYAML(greeting("hello")),
		reconciletest.Delete("greetings.example.com", "default", "a"))},
	"defaults that it writes into what a user has applied": {greet: func(ctx context.Context,
		g *unstructured.Unstructured, c clients) error {
		if _, there, _ := unstructured.NestedString(g.Object, "spec", "tone"); there {
			return nil
		}
		g = g.DeepCopy()
		if err := unstructured.SetNestedField(g.Object, "kind", "spec", "tone"); err != nil {
			return err
		}
		_, err := c.greetings.Namespace("default").Update(ctx, g, metav1.UpdateOptions{})
		return ignoreGone(err)
	}, steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"))},
	"one after the other, as they ask for": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		if g.GetName() == "b" {
			a, err := c.greetings.Namespace("default").Get(ctx, "a", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return setStatus(ctx, c, g, map[string]any{"phase": "Waiting"})
			}
			if err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(a.Object, "status", "phase"); phase != "Ready" {
				return setStatus(ctx, c, g, map[string]any{"phase": "Waiting"})
			}
		}
		if err := makeMap(ctx, c, g, "of-"+g.GetName()); err != nil {
			return err
		}
		return setStatus(ctx, c, g, map[string]any{"phase": "Ready"})
	}, steps: reconciletest.ApplyYAML(strings.ReplaceAll(greeting("hello"), "name: a", "name: b"), greeting("hello"))},
	"a claim that a pod uses": {
		greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			for ctx.Err() == nil {
				if err := claimed(ctx, c); err != nil {
					return err
				}
				if err := right(ctx, g, c); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Second):
				}
				now, err := c.greetings.Namespace("default").Get(ctx, g.GetName(), metav1.GetOptions{})
				if err != nil {
					return ignoreGone(err)
				}
				g = now
			}
			return nil
		},
		steps: reconciletest.ApplyYAML(greeting("hello")),
	},
	"what something else uses is kept until that has gone": {
		greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			all, finalizers := c.greetings.Namespace("default"), g.GetFinalizers()
			switch _, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "user", metav1.GetOptions{}); {
			case err != nil && !apierrors.IsNotFound(err):
				return err
			case g.GetDeletionTimestamp() != nil && err == nil:
				return nil
			case g.GetDeletionTimestamp() != nil:
				finalizers = nil
			case len(finalizers) == 0:
				finalizers = []string{"example.com/used"}
			default:
				text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
				return setStatus(ctx, c, g, map[string]any{"text": text})
			}
			g = g.DeepCopy()
			g.SetFinalizers(finalizers)
			_, err := all.Update(ctx, g, metav1.UpdateOptions{})
			return ignoreGone(err)
		},
		steps: reconciletest.ApplyYAML(greeting("hello"), "{apiVersion: v1, kind: ConfigMap, "+
			"metadata: {name: user, namespace: default}, data: {greetingName: a}}", greeting("bye")),
	},
	"what a user has applied to since": {
		greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			return makeMap(ctx, c, g, "a")
		},
		steps: reconciletest.ApplyYAML(greeting("hello"),
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}, data: {mine: kept}}"),
	},
	"what others have made for something that is deleted": {greet: func(ctx context.Context,
		g *unstructured.Unstructured, c clients) error {
		all := c.greetings.Namespace("default")
		if g.GetDeletionTimestamp() == nil {
			if len(g.GetFinalizers()) > 0 {
				return nil
			}
			g = g.DeepCopy()
			g.SetFinalizers([]string{"example.com/cleans"})
			_, err := all.Update(ctx, g, metav1.UpdateOptions{})
			return err
		}
		err := c.core.CoreV1().ConfigMaps("default").Delete(ctx, g.GetName()+"-data", metav1.DeleteOptions{})
		if err := ignoreGone(err); err != nil {
			return err
		}
		g = g.DeepCopy()
		g.SetFinalizers(nil)
		_, err = all.Update(ctx, g, metav1.UpdateOptions{})
		return ignoreGone(err)
	}, steps: append(reconciletest.ApplyYAML(greeting("hello")+
		"---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a-data}}\n"),
		reconciletest.Delete("greetings.example.com", "default", "a"))},
	"names that count generations": {greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		name := fmt.Sprintf("a-%d", g.GetGeneration())
		_, err := c.core.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
			Data: map[string]string{"text": text}, ObjectMeta: metav1.ObjectMeta{Name: name,
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(g, greetings.GroupVersion().WithKind("Greeting"))}}},
			metav1.CreateOptions{})
		if err := ignoreThere(err); err != nil {
			return err
		}
		return setStatus(ctx, c, g, map[string]any{"latest": name})
	}, steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"), greeting("hi"))},
	"owners in the order in which they have come": {greet: func(ctx context.Context, g *unstructured.Unstructured,
		c clients) error {
		if err := makeMap(ctx, c, g, "shared"); err != nil {
			return err
		}
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "shared", metav1.GetOptions{})
		if err != nil || slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
			return o.UID == g.GetUID()
		}) {
			return err
		}
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "example.com/v1",
			Kind: "Greeting", Name: g.GetName(), UID: g.GetUID()})
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return err
	}, steps: reconciletest.ApplyYAML(strings.ReplaceAll(greeting("hello"), "name: a", "name: b"), greeting("hello"))},
	"a list in a status in the order in which they have come": {greet: func(ctx context.Context,
		g *unstructured.Unstructured, c clients) error {
		first, err := c.greetings.Namespace("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		all, _, _ := unstructured.NestedStringSlice(first.Object, "status", "seen")
		if slices.Contains(all, g.GetName()) {
			return nil
		}
		seen := []any{g.GetName()}
		for _, name := range all {
			seen = append(seen, name)
		}
		return setStatus(ctx, c, first, map[string]any{"seen": seen})
	}, steps: reconciletest.ApplyYAML(greeting("hello") + "---\n" +
		strings.ReplaceAll(greeting("hello"), "name: a", "name: b"))},
	"a count of what has failed": {greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		err := right(ctx, g, c)
		if err == nil || apierrors.IsNotFound(err) {
			return err
		}
		n, _, _ := unstructured.NestedInt64(g.Object, "status", "sync", "failureCount")
		return errors.Join(err, setStatus(ctx, c, g, map[string]any{"sync": map[string]any{"failureCount": n + 1}}))
	}, steps: reconciletest.ApplyYAML(greeting("hello"))},
	"a name that it draws": {greet: func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		name, _, _ := unstructured.NestedString(g.Object, "status", "made")
		if name == "" {
			name = "a-" + uuid.NewString()[:8]
			if err := setStatus(ctx, c, g, map[string]any{"made": name}); err != nil {
				return err
			}
		}
		_, err := c.core.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: name, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(g, greetings.GroupVersion().WithKind("Greeting"))}}}, metav1.CreateOptions{})
		return ignoreThere(err)
	}},
	"what users have in a namespace that is made anew": {
		greet: right,
		steps: reconciletest.ApplyYAML(greeting("hello")+"---\n"+
			"{apiVersion: v1, kind: Namespace, metadata: {name: team}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: team}, data: {mine: lost}}",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: team}, data: {mine: kept}}",
			"{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {mine: 'yes'}}}"),
	},
}

// keepsTwo makes a ConfigMap for the text of a Greeting, and deletes all before the last one.
func keepsTwo(ctx context.Context, g *unstructured.Unstructured, c clients) error {
	maps := c.core.CoreV1().ConfigMaps("default")
	text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a-" + text,
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(g, greetings.GroupVersion().WithKind("Greeting"))}}}, metav1.CreateOptions{})
	if err := ignoreThere(err); err != nil {
		return err
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(list.Items, func(m corev1.ConfigMap) bool {
		return !metav1.IsControlledBy(&m, g) || m.Name == "a-"+text
	})
	slices.SortFunc(old, func(a, b corev1.ConfigMap) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	for _, m := range old[min(1, len(old)):] {
		if err := ignoreGone(maps.Delete(ctx, m.Name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// once makes a ConfigMap of a Greeting, and then nothing any more, as its status says.
func once(status map[string]any) greetFunc {
	return func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		if g.Object["status"] != nil {
			return nil
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(g, greetings.GroupVersion().WithKind("Greeting"))}}}
		_, err := c.core.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
		if err := ignoreThere(err); err != nil {
			return err
		}
		m, err = c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil || !metav1.IsControlledBy(m, g) {
			return errors.Join(err, errors.New("the one of a namesake is there"))
		}
		return setStatus(ctx, c, g, status)
	}
}

// controlled is the metadata of what a Greeting controls.
func controlled(g *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: g.GetName(), OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(g, greetings.GroupVersion().WithKind("Greeting"))}}
}

// complete gives a Greeting the condition Complete, unless it has it.
func complete(ctx context.Context, c clients, g *unstructured.Unstructured) error {
	return setStatus(ctx, c, g, map[string]any{"conditions": []any{
		map[string]any{"type": "Complete", "status": "True"}}})
}

// claimed makes a pod and the claim that it uses, unless they are there.
func claimed(ctx context.Context, c clients) error {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: size}}}
	_, err := c.core.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
	if err := ignoreThere(err); err != nil {
		return err
	}
	source := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{NodeName: "n",
		Containers: []corev1.Container{{Name: "a", Image: "a"}},
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &source}}}}}
	_, err = c.core.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	return ignoreThere(err)
}

// TestCheckIsSilentAboutRightPrograms with nothing switched off.
func TestCheckIsSilentAboutRightPrograms(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(unusual)) {
		t.Run(name, func(t *testing.T) {
			reconciletest.Check(t, unusualScenario(name))
		})
	}
}

func unusualScenario(name string) reconciletest.Scenario {
	program := unusual[name]
	s := greets(plain(program.greet))
	s.Server = reconciletest.Options{Resources: []reconciletest.Resource{{GroupVersionResource: greetings,
		Kind: "Greeting", Status: true}}}
	s.User, s.Settled, s.Budget = "", nil, 100*time.Millisecond
	if program.steps != nil {
		s.Steps = program.steps
	}
	return s
}

// TestCheckAsksSettledOfWhatIsComplete, and does not excuse what is said to be missing.
func TestCheckAsksSettledOfWhatIsComplete(t *testing.T) {
	s := unusualScenario("what belonged to something that is complete")
	s.Settled = func(s *reconciletest.Server) error {
		if _, there := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "default", "a"); !there {
			return errors.New("the ConfigMap is missing")
		}
		return nil
	}
	s.Replay = "v1 seed=0 steps=1: delete configmaps in step 1"
	require.Equal(t, "converges", first(t, s).Rule)
}

// TestAHistoryIsLearnedWhereAGoroutineIsLeft, too: by a program that leaves one when it first sees all at its start.
func TestAHistoryIsLearnedWhereAGoroutineIsLeft(t *testing.T) {
	const history = "an annotation of the last operation"
	s, left := unusualScenario(history), false
	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		started := time.Now()
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
			if apierrors.IsNotFound(err) && time.Since(started) < time.Second && !left {
				left = true
				go func() { select {} }() // nothing ends it
			}
			return unusual[history].greet(ctx, g, c)
		})(ctx, cfg)
	}
	s.Steps = reconciletest.ApplyYAML(greeting("hello"), greeting("bye"))
	s.Replay = "v1 seed=0 steps=2: cold start"
	require.Empty(t, reconciletest.Search(t, s))
	require.True(t, left)
}

// TestAGeneratedNameMayBeUsedAgain for an object that a third party has deleted.
func TestAGeneratedNameMayBeUsedAgain(t *testing.T) {
	unusual := unusualScenario("a status with a resourceVersion")
	unusual.Run = plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		there, err := c.core.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if err != nil || len(there.Items) > 0 {
			return err
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
		if named, _, _ := unstructured.NestedString(g.Object, "status", "made"); named != "" {
			m.ObjectMeta = metav1.ObjectMeta{Name: named}
		}
		if m, err = c.core.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return err
		}
		return setStatus(ctx, c, g, map[string]any{"made": m.Name})
	})
	unusual.Steps, unusual.Replay = unusual.Steps[:1], "v1 seed=0 steps=1: delete configmaps in step 1"
	require.Empty(t, reconciletest.Search(t, unusual))
}

// TestAGeneratedNameOfAnotherKindIsKept is about a program that gives a Secret the generated name of its ConfigMap, and
// leaves it as it is when a third party has deleted the ConfigMap.
func TestAGeneratedNameOfAnotherKindIsKept(t *testing.T) {
	unusual := unusualScenario("a status with a resourceVersion")
	unusual.Run = plain(func(ctx context.Context, _ *unstructured.Unstructured, c clients) error {
		configs, secrets := c.core.CoreV1().ConfigMaps("default"), c.core.CoreV1().Secrets("default")
		there, err := configs.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(there.Items) == 0 {
			m, err := configs.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}},
				metav1.CreateOptions{})
			if err != nil {
				return err
			}
			there.Items = append(there.Items, *m)
		}
		if all, err := secrets.List(ctx, metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
			return err
		}
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: there.Items[0].Name}},
			metav1.CreateOptions{})
		return err
	})
	unusual.Steps, unusual.Replay = unusual.Steps[:1], "v1 seed=0 steps=1: delete configmaps in step 1"
	require.Equal(t, "ends alike", first(t, unusual).Rule)
}

// setStatus gives a Greeting a status, unless it has it.
func setStatus(ctx context.Context, c clients, g *unstructured.Unstructured, status map[string]any) error {
	if there, _, _ := unstructured.NestedMap(g.Object, "status"); fmt.Sprint(there) == fmt.Sprint(status) {
		return nil
	}
	g = g.DeepCopy()
	g.Object["status"] = status
	_, err := c.greetings.Namespace(g.GetNamespace()).UpdateStatus(ctx, g, metav1.UpdateOptions{})
	return err
}

// makeMap makes a ConfigMap of a Greeting, unless it is there.
func makeMap(ctx context.Context, c clients, g *unstructured.Unstructured, name string) error {
	_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err = c.core.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
	return ignoreThere(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func ignoreThere(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// TestCheckDoesNotCompareWhatIsRandomInATemplate, such as the digest of a key, and so no ReplicaSet whose name has a
// hash of the template, and no pod.
func TestCheckDoesNotCompareWhatIsRandomInATemplate(t *testing.T) {
	labels := map[string]string{"app": "a"}
	s := reconciletest.Scenario{
		Run: plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
			all := c.core.AppsV1().Deployments("default")
			d, err := all.Get(ctx, "a", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				controls := true
				_, err = all.Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a",
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Greeting", Name: "a",
						UID: g.GetUID(), Controller: &controls}}},
					Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
						Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels,
							Annotations: map[string]string{"key": rand.Text()}},
							Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: text}}}}}},
					metav1.CreateOptions{})
				return err
			}
			if err != nil || d.Spec.Template.Spec.Containers[0].Image == text {
				return err
			}
			d.Spec.Template.Spec.Containers[0].Image = text
			_, err = all.Update(ctx, d, metav1.UpdateOptions{})
			return err
		}),
		Server: reconciletest.Options{Resources: []reconciletest.Resource{{GroupVersionResource: greetings,
			Kind: "Greeting", Status: true}}},
		World: &reconciletest.World{}, Steps: reconciletest.ApplyYAML(greeting("one"), greeting("two")),
	}
	for _, by := range []string{"cold start", "unseen steps", "slow", "down over step 1",
		"500 to create deployments #1"} {
		s.Replay = "v1 seed=0 steps=2: " + by
		require.Empty(t, reconciletest.Search(t, s), by)
	}
}
