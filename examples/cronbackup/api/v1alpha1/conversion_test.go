package v1alpha1_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1alpha1"
	"github.com/thermostat-go/thermostat/reconcile/webhook/webhooktest"
)

// FuzzConversion converts random objects to the other version and back.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzRoundTrip(f, v1alpha1.ToV1, v1alpha1.FromV1, func(b *v1alpha1.CronBackup, c randfill.Continue) {
		c.FillNoCustom(b)
		b.Spec.Retention = fmt.Sprintf("%dd", 1+c.Intn(9999))
		if suspended := c.Intn(3); suspended > 0 {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.Suspended, []string{"false", "true"}[suspended-1])
		}
	}, func(b *v1.CronBackup, c randfill.Continue) {
		c.FillNoCustom(b)
		b.Spec.RetentionDays = 1 + c.Int31n(9999)
		if !b.Spec.Suspend && c.Bool() {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.Suspended, "false")
		}
	})
}

// TestSuspended: the annotation says nothing in v1, and becomes nothing by a conversion.
func TestSuspended(t *testing.T) {
	for _, suspend := range []bool{false, true} {
		for _, annotation := range []string{"", "false", "true"} {
			b := &v1.CronBackup{Spec: v1.CronBackupSpec{Suspend: suspend}}
			if annotation != "" {
				metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.Suspended, annotation)
			}
			old, err := v1alpha1.FromV1(b)
			require.NoError(t, err)
			require.Equal(t, suspend, old.Annotations[v1alpha1.Suspended] == "true", "%t, %q", suspend, annotation)
			again, err := v1alpha1.ToV1(old)
			require.NoError(t, err)
			require.Equal(t, suspend, again.Spec.Suspend, "%t, %q", suspend, annotation)
		}
	}
}
