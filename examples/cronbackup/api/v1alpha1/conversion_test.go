package v1alpha1_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/randfill"

	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1alpha1"
	"github.com/thermostat-go/thermostat/reconcile/webhook/webhooktest"
)

// FuzzConversion converts random objects to the other version and back.
func FuzzConversion(f *testing.F) {
	webhooktest.FuzzRoundTrip(f, v1alpha1.ToV1, v1alpha1.FromV1, func(s *v1alpha1.CronBackupSpec, c randfill.Continue) {
		c.FillNoCustom(s)
		s.Retention = fmt.Sprintf("%dd", 1+c.Intn(3650))
	})
}
