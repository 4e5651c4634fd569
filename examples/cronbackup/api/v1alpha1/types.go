package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
)

// CronBackup backs a database up, time and again.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cb,categories=all
// +kubebuilder:deprecatedversion:warning="backups.example.com/v1alpha1 CronBackup is deprecated; use v1"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="name too long for a CronJob"
type CronBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CronBackupSpec      `json:"spec"`
	Status v1.CronBackupStatus `json:"status,omitempty"`
}

// CronBackupSpec is what the user wants. Backups cannot be suspended in this version.
type CronBackupSpec struct {
	// Schedule says when backups start, in UTC: five fields of cron, or a macro such as @daily.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+( \S+){4})$`
	Schedule string `json:"schedule,omitempty"`

	// Database is the database to be backed up, by the host name of its server. It cannot be changed.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed; make another CronBackup"
	Database string `json:"database"`

	// Retention is how long a backup is kept, in days, such as 30d.
	//
	// +optional
	// +kubebuilder:default="7d"
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,3}d$`
	Retention string `json:"retention,omitempty"`
}
