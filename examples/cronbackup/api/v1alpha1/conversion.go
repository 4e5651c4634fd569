package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
)

// Suspended is an annotation of a CronBackup of this version: "true" is what v1 has in spec.suspend. In v1 it means
// nothing, so "true" does not come along from there.
const Suspended = "backups.example.com/suspended"

// ToV1 converts a CronBackup of this version.
func ToV1(old *CronBackup) (*v1.CronBackup, error) {
	b := &v1.CronBackup{ObjectMeta: *old.ObjectMeta.DeepCopy(), Status: *old.Status.DeepCopy()}
	b.Spec = v1.CronBackupSpec{Schedule: old.Spec.Schedule, TargetDatabase: old.Spec.Database,
		Suspend: old.Annotations[Suspended] == "true"}
	if old.Spec.Retention != "" {
		days, err := strconv.ParseInt(strings.TrimSuffix(old.Spec.Retention, "d"), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("spec.retention: %w", err)
		}
		b.Spec.RetentionDays = int32(days)
	}
	if b.Spec.Suspend {
		delete(b.Annotations, Suspended)
	}
	return b, nil
}

// FromV1 converts a CronBackup to this version.
func FromV1(b *v1.CronBackup) (*CronBackup, error) {
	old := &CronBackup{ObjectMeta: *b.ObjectMeta.DeepCopy(), Status: *b.Status.DeepCopy()}
	old.Spec = CronBackupSpec{Schedule: b.Spec.Schedule, Database: b.Spec.TargetDatabase}
	if b.Spec.RetentionDays != 0 {
		old.Spec.Retention = strconv.Itoa(int(b.Spec.RetentionDays)) + "d"
	}
	if b.Spec.Suspend {
		metav1.SetMetaDataAnnotation(&old.ObjectMeta, Suspended, "true")
	} else if old.Annotations[Suspended] == "true" {
		delete(old.Annotations, Suspended)
	}
	return old, nil
}
