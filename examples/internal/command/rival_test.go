package command

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func writtenBy(manager, subresource string, second int64) func(*metav1.ObjectMeta) {
	return func(o *metav1.ObjectMeta) {
		o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
			Time: &metav1.Time{Time: time.Unix(second, 0)},
		})
	}
}

func madeAt(second int64) func(*metav1.ObjectMeta) {
	return func(o *metav1.ObjectMeta) { o.CreationTimestamp = metav1.NewTime(time.Unix(second, 0)) }
}

func made(change ...func(*metav1.ObjectMeta)) *metav1.ObjectMeta {
	o := &metav1.ObjectMeta{}
	for _, f := range change {
		f(o)
	}
	return o
}

func TestRival(t *testing.T) {
	spec, us, them := writtenBy("kube-controller-manager", "", 1), writtenBy(testProgram.manager(), "status", 2),
		writtenBy("kube-controller-manager", "status", 3)
	for name, c := range map[string]struct {
		before, after *metav1.ObjectMeta
		want          string
	}{
		"no client has written a status": {made(), made(spec), ""},
		"we have":                        {made(spec), made(spec, us), ""},
		"they had, before":               {made(them), made(them, us), ""},
		"they have":                      {made(us), made(us, them), "kube-controller-manager"},
		"they have again": {made(them), made(writtenBy("kube-controller-manager", "status", 4)),
			"kube-controller-manager"},
		"they have, while we were away":      {made(), made(them), "kube-controller-manager"},
		"it comes from a backup of theirs":   {made(), made(them, madeAt(4)), ""},
		"they have, as soon as it was made":  {made(), made(them, madeAt(3)), "kube-controller-manager"},
		"a client has scaled":                {made(us), made(us, writtenBy("kubectl", "scale", 5)), ""},
		"theirs is gone, as ours is all new": {made(them), made(us), ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, rival(testProgram.manager(), c.before.GetManagedFields(), c.after))
		})
	}
}
