//go:build !client_go_0_35

package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

func FuzzCompareVersionsAsApimachinery(f *testing.F) {
	versions := []string{"", "0", "1", "2", "9", "10", "11", "99", "100", "01", "00", "1a", "a1", "a", "-1", "+1",
		"1.0", " 1", "1 ", "１", "18446744073709551615", "18446744073709551616", "1844674407370955161600"}
	for _, a := range versions {
		for _, b := range versions {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		want, wantErr := resourceversion.CompareResourceVersion(a, b)
		got, err := CompareVersions(a, b)
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("CompareVersions(%q, %q) = %d, %v; apimachinery: %d, %v", a, b, got, err, want, wantErr)
		}
	})
}
