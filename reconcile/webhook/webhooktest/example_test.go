package webhooktest_test

import (
	"strconv"
	"testing"

	"sigs.k8s.io/randfill"

	"github.com/thermostat-go/thermostat/reconcile/webhook/webhooktest"
)

// The size of a text is a number, so not every text will do.
func ExampleFuzzRoundTrip() {
	var f *testing.F // the parameter of func FuzzConversion(f *testing.F)
	webhooktest.FuzzRoundTrip(f, toText, fromText, func(t *text, c randfill.Continue) {
		c.Fill(&t.ObjectMeta)
		t.Size = strconv.Itoa(int(c.Int31()))
	})
}
