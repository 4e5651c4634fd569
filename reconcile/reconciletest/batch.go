package reconciletest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The labels by which a Job finds its pods. The server sets them, each by an older and a newer name.
var (
	jobNameLabels = []string{"job-name", batchv1.JobNameLabel}
	jobUIDLabels  = []string{"controller-uid", batchv1.ControllerUidLabel}
)

func jobRules() *rules {
	return &rules{
		new: func() object { return &batchv1.Job{} }, generation: true, orphans: true,
		defaults: func(o object) { defaultJob(o.(*batchv1.Job)) },
		onCreate: func(o object) {
			job := o.(*batchv1.Job)
			inherits := len(job.Labels) > 0 && appliesNoLabels(job)
			generateSelector(job)
			if inherits {
				job.Labels = maps.Clone(job.Spec.Template.Labels)
			}
		},
		lend: func(o object) bool {
			job := o.(*batchv1.Job)
			lent := len(job.Labels) == 0 && len(job.Spec.Template.Labels) > 0
			if lent {
				job.Labels = maps.Clone(job.Spec.Template.Labels)
			}
			return lent
		},
		validate: func(o, old object) field.ErrorList {
			job, spec := o.(*batchv1.Job), field.NewPath("spec")
			was, _ := old.(*batchv1.Job)
			errs := validateJobSpec(job.Spec, spec)
			errs = append(errs, validateJobSelector(job.Spec, spec)...)
			if was == nil {
				errs = append(errs, validateGeneratedSelector(job)...)
			} else {
				errs = append(errs, validateJobUpdate(job, was)...)
			}
			if n := job.Spec.Completions; *job.Spec.CompletionMode == batchv1.IndexedCompletion && n != nil && *n > 0 {
				for _, message := range validation.IsDNS1123Label(fmt.Sprintf("%s-%d", job.Name, *n-1)) {
					errs = append(
						errs,
						field.Invalid(field.NewPath("metadata", "name"), job.Name, "it makes no hostname: "+message),
					)
				}
			}
			return append(errs, validateJobStatus(job, was)...)
		},
		beyond: func(o object) string { return templateBeyond(o.(*batchv1.Job).Spec.Template) },
		fields: func(o object) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(o.(*batchv1.Job).Status.Succeeded))}
		},
	}
}

func defaultJob(job *batchv1.Job) {
	spec := &job.Spec
	if spec.Parallelism == nil {
		orOne(&spec.Completions)
	}
	orOne(&spec.Parallelism)
	limit := int32(6)
	if spec.BackoffLimitPerIndex != nil {
		limit = math.MaxInt32
	}
	orDefault(&spec.BackoffLimit, limit)
	if len(job.Labels) == 0 && job.Spec.Template.Labels != nil {
		job.Labels = job.Spec.Template.Labels // the same map: what generateSelector adds to one is in both
	}
	orDefault(&spec.CompletionMode, batchv1.NonIndexedCompletion)
	orDefault(&spec.Suspend, false)
	orDefault(&spec.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	orDefault(&spec.ManualSelector, false)
	defaultPodSpec(&spec.Template.Spec)
}

// generateSelector makes a Job select the pods that bear its UID, unless its author does so.
func generateSelector(job *batchv1.Job) {
	spec := &job.Spec
	if *spec.ManualSelector {
		return
	}
	if spec.Template.Labels == nil {
		spec.Template.Labels = make(map[string]string)
	}
	set := func(labels map[string]string, name, value string) {
		if _, ok := labels[name]; !ok {
			labels[name] = value
		}
	}
	for i := range jobNameLabels {
		set(spec.Template.Labels, jobNameLabels[i], job.Name)
		set(spec.Template.Labels, jobUIDLabels[i], string(job.UID))
	}
	orDefault(&spec.Selector, metav1.LabelSelector{})
	if spec.Selector.MatchLabels == nil {
		spec.Selector.MatchLabels = make(map[string]string)
	}
	set(spec.Selector.MatchLabels, batchv1.ControllerUidLabel, string(job.UID))
}

// appliesNoLabels reports whether a new Job comes from an apply that says nothing of its labels. It has those of its
// pods then, with what generateSelector adds.
func appliesNoLabels(job *batchv1.Job) bool {
	for _, e := range job.ManagedFields {
		if e.Operation != metav1.ManagedFieldsOperationApply || e.FieldsV1 == nil {
			continue
		}
		var owned map[string]map[string]any
		if raw, err := e.FieldsV1.MarshalJSON(); err == nil && json.Unmarshal(raw, &owned) == nil {
			return owned["f:metadata"]["f:labels"] == nil
		}
	}
	return false
}

// validateGeneratedSelector refuses labels in the place of those that the server sets.
func validateGeneratedSelector(job *batchv1.Job) (errs field.ErrorList) {
	if *job.Spec.ManualSelector || job.Spec.Selector == nil {
		return nil
	}
	want := labelSet(map[string]string{})
	for i := range jobNameLabels {
		want[jobNameLabels[i]], want[jobUIDLabels[i]] = job.Name, string(job.UID)
	}
	labels := field.NewPath("spec", "template", "metadata", "labels")
	for name, value := range want {
		if is := job.Spec.Template.Labels[name]; is != value {
			errs = append(errs, field.Invalid(labels.Key(name), is, fmt.Sprintf("must be '%s'", value)))
		}
	}
	if s, err := metav1.LabelSelectorAsSelector(job.Spec.Selector); err == nil && !s.Matches(want) {
		errs = append(
			errs,
			field.Invalid(field.NewPath("spec", "selector"), job.Spec.Selector, "`selector` not auto-generated"),
		)
	}
	return errs
}

func validateJobSelector(spec batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	if spec.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		errs = append(
			errs,
			metav1validation.ValidateLabelSelector(
				spec.Selector,
				metav1validation.LabelSelectorValidationOptions{},
				path.Child("selector"),
			)...)
	}
	s, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err == nil && !s.Matches(labelSet(spec.Template.Labels)) {
		errs = append(
			errs,
			field.Invalid(
				path.Child("template", "metadata", "labels"),
				spec.Template.Labels,
				"`selector` does not match template `labels`",
			),
		)
	}
	return errs
}

// validateJobSpec judges the spec of a Job, or that of the Jobs of a CronJob.
func validateJobSpec(spec batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	for name, n := range map[string]*int32{
		"parallelism": spec.Parallelism, "completions": spec.Completions, "backoffLimit": spec.BackoffLimit,
		"maxFailedIndexes":        spec.MaxFailedIndexes,
		"ttlSecondsAfterFinished": spec.TTLSecondsAfterFinished, "backoffLimitPerIndex": spec.BackoffLimitPerIndex,
	} {
		if n != nil {
			errs = append(errs, nonnegative(path.Child(name), int64(*n))...)
		}
	}
	if n := spec.ActiveDeadlineSeconds; n != nil {
		errs = append(errs, nonnegative(path.Child("activeDeadlineSeconds"), *n)...)
	}
	if spec.MaxFailedIndexes != nil && spec.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	errs = append(errs, validateIndexes(spec, path)...)
	errs = append(errs, validateTemplate(spec.Template, path.Child("template"))...)
	policy := path.Child("template", "spec", "restartPolicy")
	if spec.Template.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		errs = append(errs, field.Required(policy, `valid values: "OnFailure", "Never"`))
	}
	return errs
}

// validateIndexes judges what goes with one completion mode only.
func validateIndexes(spec batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	const most = 100_000
	failed, perIndex := spec.MaxFailedIndexes, spec.BackoffLimitPerIndex
	if spec.CompletionMode == nil || *spec.CompletionMode == batchv1.NonIndexedCompletion {
		if perIndex != nil {
			errs = append(
				errs,
				field.Invalid(path.Child("backoffLimitPerIndex"), *perIndex, "requires indexed completion mode"),
			)
		}
		if failed != nil {
			errs = append(
				errs,
				field.Invalid(path.Child("maxFailedIndexes"), *failed, "requires indexed completion mode"),
			)
		}
		return errs
	}
	if spec.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	if n := spec.Parallelism; n != nil && *n > most {
		errs = append(
			errs,
			field.Invalid(path.Child("parallelism"), *n, fmt.Sprintf("must be less than or equal to %d", most)),
		)
	}
	if failed != nil && (*failed > most || spec.Completions != nil && *failed > *spec.Completions) {
		errs = append(
			errs,
			field.Invalid(path.Child("maxFailedIndexes"), *failed, "must be less than or equal to completions"),
		)
	}
	return errs
}

// validateJobUpdate refuses changes to what never changes in a Job. While a Job is suspended and no pod of it runs, its
// pods may change in some ways.
func validateJobUpdate(job, was *batchv1.Job) (errs field.ErrorList) {
	is, old := job.Spec, was.Spec
	completions := field.NewPath("spec", "completions")
	switch indexed := *is.CompletionMode == batchv1.IndexedCompletion; {
	case apiequality.Semantic.DeepEqual(is.Completions, old.Completions):
	case !indexed:
		errs = append(errs, field.Invalid(completions, is.Completions, apivalidation.FieldImmutableErrorMsg))
	case is.Completions != nil && *is.Completions != *is.Parallelism:
		errs = append(
			errs,
			field.Invalid(completions, is.Completions, "can only be modified in tandem with spec.parallelism"),
		)
	}
	errs = append(errs, immutable(
		value{
			"spec.selector",
			old.Selector,
			is.Selector,
		},
		value{"spec.completionMode", old.CompletionMode, is.CompletionMode},
		value{"spec.backoffLimitPerIndex", old.BackoffLimitPerIndex, is.BackoffLimitPerIndex},
	)...)
	template := *old.Template.DeepCopy()
	suspended := *old.Suspend
	mutable := suspended && was.Status.Active == 0 &&
		(was.Status.StartTime == nil || jobHas(was, batchv1.JobSuspended, corev1.ConditionTrue))
	if mutable {
		template.Annotations, template.Labels = is.Template.Annotations, is.Template.Labels
		template.Spec.NodeSelector = is.Template.Spec.NodeSelector
	}
	if !mutable {
		return append(errs, immutable(value{"spec.template", template, is.Template})...)
	}
	if containers := is.Template.Spec.Containers; len(containers) == len(template.Spec.Containers) {
		for i := range containers {
			if containers[i].Name == template.Spec.Containers[i].Name {
				template.Spec.Containers[i].Resources = containers[i].Resources
			}
		}
	}
	return append(errs, immutable(value{"spec.template.spec", template.Spec, is.Template.Spec})...)
}

func jobHas(job *batchv1.Job, condition batchv1.JobConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(
		job.Status.Conditions,
		func(c batchv1.JobCondition) bool { return c.Type == condition && c.Status == status },
	)
}

// jobState are the conditions of a Job that are true.
type jobState struct{ complete, failed, failureTarget, successCriteriaMet bool }

func stateOf(job *batchv1.Job) jobState {
	is := func(condition batchv1.JobConditionType) bool { return jobHas(job, condition, corev1.ConditionTrue) }
	return jobState{
		is(batchv1.JobComplete),
		is(batchv1.JobFailed),
		is(batchv1.JobFailureTarget),
		is(batchv1.JobSuccessCriteriaMet),
	}
}

func (s jobState) finished() bool { return s.complete || s.failed }

// validateJobStatus judges the status of a Job, of which others may be the controller: what cannot be, and what cannot
// become of what was. A rule about some
// fields holds when one of them has changed.
func validateJobStatus(job, old *batchv1.Job) (errs field.ErrorList) {
	is, path := job.Status, field.NewPath("status")
	if old == nil {
		old = &batchv1.Job{}
	}
	was, now, before := old.Status, stateOf(job), stateOf(old)
	if apiequality.Semantic.DeepEqual(is, was) {
		return nil
	}
	errs = append(errs, validateJobCounts(is, path)...)
	conditions := path.Child("conditions")
	invalid := func(when bool, at *field.Path, detail string) {
		if when {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, detail))
		}
	}
	missing := func(when bool, at *field.Path, detail string) {
		if when {
			errs = append(errs, field.Required(at, detail))
		}
	}
	finished := now.finished() != before.finished()
	completed, failed := now.complete != before.complete, now.failed != before.failed
	started := !is.StartTime.Equal(was.StartTime)
	ended := !is.CompletionTime.Equal(was.CompletionTime)
	suspended := job.Spec.Suspend != nil && *job.Spec.Suspend
	nothingToDo := suspended && job.Spec.Completions != nil && *job.Spec.Completions == 0
	resumed := jobHas(old, batchv1.JobSuspended, corev1.ConditionTrue) &&
		jobHas(job, batchv1.JobSuspended, corev1.ConditionFalse)

	invalid(
		(completed || failed) && now.complete && now.failed,
		conditions,
		"cannot set Complete=True and Failed=true conditions",
	)
	invalid((completed || now.failureTarget != before.failureTarget) && now.complete && now.failureTarget, conditions,
		"cannot set Complete=True and FailureTarget=true conditions")
	invalid(
		(completed || ended) && is.CompletionTime != nil && !now.complete,
		path.Child("completionTime"),
		"there is no Complete=True condition",
	)
	missing(
		(completed || ended) && is.CompletionTime == nil && now.complete,
		path.Child("completionTime"),
		"completionTime is required for Complete jobs",
	)
	invalid(
		(started || ended) && is.StartTime != nil && is.CompletionTime != nil && is.CompletionTime.Before(is.StartTime),
		path.Child("completionTime"),
		"must be equal to or after `startTime`",
	)
	invalid(
		failed && now.failed && !now.failureTarget,
		conditions,
		"cannot set Failed=True condition without the FailureTarget=true condition",
	)
	invalid(
		(completed || now.successCriteriaMet != before.successCriteriaMet) && now.complete && !now.successCriteriaMet,
		conditions,
		"cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
	)
	invalid(
		(finished || is.Active != was.Active) && is.Active > 0 && now.finished(),
		path.Child("active"),
		"active>0 is invalid for finished job",
	)
	missing(
		(finished || started) && !nothingToDo && is.StartTime == nil && now.finished(),
		path.Child("startTime"),
		"startTime is required for finished job",
	)
	uncounted := is.UncountedTerminatedPods
	invalid(
		(finished || !apiequality.Semantic.DeepEqual(uncounted, was.UncountedTerminatedPods)) && now.finished() &&
			uncounted != nil &&
			len(
				uncounted.Failed,
			)+len(
				uncounted.Succeeded,
			) > 0,
		path.Child("uncountedTerminatedPods"),
		"must be empty for finished job",
	)
	terminating := apiequality.Semantic.DeepEqual(is.Terminating, was.Terminating)
	invalid(
		(finished || !terminating) && is.Terminating != nil && *is.Terminating > 0 && now.finished(),
		path.Child("terminating"),
		"invalid for finished job",
	)
	ready := apiequality.Semantic.DeepEqual(is.Ready, was.Ready)
	invalid(
		(!ready || is.Active != was.Active) && is.Ready != nil && *is.Ready > is.Active,
		path.Child("ready"),
		"cannot set more ready pods than active",
	)
	invalid(
		now.successCriteriaMet && (now.failed || now.failureTarget),
		conditions,
		"cannot set SuccessCriteriaMet=True and Failed=true conditions",
	)

	invalid(
		before.failed && !now.failed || before.complete && !now.complete || before.failureTarget && !now.failureTarget,
		conditions,
		"cannot disable a terminal condition",
	)
	invalid(
		before.successCriteriaMet && !now.successCriteriaMet,
		conditions,
		"cannot disable the SuccessCriteriaMet=True condition",
	)
	invalid(
		before.complete && !before.successCriteriaMet && now.successCriteriaMet,
		conditions,
		"cannot set SuccessCriteriaMet=True for a complete Job",
	)
	invalid(is.Failed < was.Failed, path.Child("failed"), "cannot decrease the failed counter")
	scalesDown := job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion &&
		apiequality.Semantic.DeepEqual(job.Spec.Completions, job.Spec.Parallelism)
	invalid(
		!scalesDown && is.Succeeded < was.Succeeded,
		path.Child("succeeded"),
		"cannot decrease the succeeded counter",
	)
	invalid(
		is.CompletionTime != nil && was.CompletionTime != nil && ended,
		path.Child("completionTime"),
		apivalidation.FieldImmutableErrorMsg,
	)
	invalid(
		started && !resumed && was.StartTime != nil && !suspended,
		path.Child("startTime"),
		"field is immutable for unsuspended job once set",
	)
	return errs
}

// validateJobCounts refuses numbers below zero, and pods that are there twice.
func validateJobCounts(s batchv1.JobStatus, path *field.Path) (errs field.ErrorList) {
	for name, n := range map[string]*int32{"active": &s.Active, "succeeded": &s.Succeeded, "failed": &s.Failed,
		"ready": s.Ready, "terminating": s.Terminating} {
		if n != nil {
			errs = append(errs, nonnegative(path.Child(name), int64(*n))...)
		}
	}
	if s.UncountedTerminatedPods == nil {
		return errs
	}
	seen := make(map[types.UID]bool)
	judge := func(name string, uids []types.UID) {
		for i, uid := range uids {
			at := path.Child("uncountedTerminatedPods", name).Index(i)
			switch {
			case uid == "":
				errs = append(errs, field.Invalid(at, uid, "must not be empty"))
			case seen[uid]:
				errs = append(errs, field.Duplicate(at, uid))
			}
			seen[uid] = true
		}
	}
	judge("succeeded", s.UncountedTerminatedPods.Succeeded)
	judge("failed", s.UncountedTerminatedPods.Failed)
	return errs
}

func cronJobRules() *rules {
	return &rules{
		new: func() object { return &batchv1.CronJob{} }, generation: true,
		defaults: func(o object) {
			spec := &o.(*batchv1.CronJob).Spec
			orValue(&spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
			orDefault(&spec.Suspend, false)
			orDefault(&spec.SuccessfulJobsHistoryLimit, 3)
			orDefault(&spec.FailedJobsHistoryLimit, 1)
			defaultPodSpec(&spec.JobTemplate.Spec.Template.Spec)
		},
		validate: func(o, old object) field.ErrorList {
			c := o.(*batchv1.CronJob)
			was, _ := old.(*batchv1.CronJob)
			errs := validateCronJobSpec(c.Spec, was)
			if was == nil &&
				len(c.Name) > validation.DNS1035LabelMaxLength-11 { // a Job's name is that and 11 characters
				errs = append(
					errs,
					field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"),
				)
			}
			return errs
		},
		beyond: func(o object) string {
			spec := o.(*batchv1.CronJob).Spec
			if spec.TimeZone != nil && *spec.TimeZone != "" && !knowsTimeZones() {
				return "time zones, of which this process has no database,"
			}
			return templateBeyond(spec.JobTemplate.Spec.Template)
		},
	}
}

func validateCronJobSpec(spec batchv1.CronJobSpec, old *batchv1.CronJob) (errs field.ErrorList) {
	path := field.NewPath("spec")
	switch at := path.Child("schedule"); {
	case spec.Schedule == "":
		errs = append(errs, field.Required(at, ""))
	case strings.Contains(spec.Schedule, "TZ"):
		errs = append(
			errs,
			field.Invalid(at, spec.Schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"),
		)
	default:
		if err := checkSchedule(spec.Schedule); err != nil {
			errs = append(errs, field.Invalid(at, spec.Schedule, err.Error()))
		}
	}
	if n := spec.StartingDeadlineSeconds; n != nil {
		errs = append(errs, nonnegative(path.Child("startingDeadlineSeconds"), *n)...)
	}
	for name, n := range map[string]*int32{"successfulJobsHistoryLimit": spec.SuccessfulJobsHistoryLimit,
		"failedJobsHistoryLimit": spec.FailedJobsHistoryLimit} {
		errs = append(errs, nonnegative(path.Child(name), int64(*n))...)
	}
	if old == nil || !apiequality.Semantic.DeepEqual(old.Spec.TimeZone, spec.TimeZone) {
		errs = append(errs, validateTimeZone(spec.TimeZone, path.Child("timeZone"))...)
	}
	template := path.Child("jobTemplate", "spec")
	errs = append(errs, validateJobSpec(spec.JobTemplate.Spec, template)...)
	if s := spec.JobTemplate.Spec.Selector; s != nil {
		errs = append(errs, field.Invalid(template.Child("selector"), s, "`selector` will be auto-generated"))
	}
	if m := spec.JobTemplate.Spec.ManualSelector; m != nil && *m {
		errs = append(errs, field.NotSupported(template.Child("manualSelector"), m, []string{"nil", "false"}))
	}
	return errs
}

var timeZonePart = regexp.MustCompile(`^[A-Za-z\.\-_0-9+]{1,14}$`)

// validateTimeZone refuses a name that the database of time zones does not have.
func validateTimeZone(name *string, path *field.Path) field.ErrorList {
	if name == nil {
		return nil
	}
	wrong := *name == "" || strings.EqualFold(*name, "Local")
	for part := range strings.SplitSeq(*name, "/") {
		wrong = wrong || part == "." || part == ".." || strings.HasPrefix(part, "-") || !timeZonePart.MatchString(part)
	}
	if _, err := time.LoadLocation(*name); !wrong && err == nil {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *name, "unknown time zone")}
}

// knowsTimeZones reports whether this process can tell a time zone from another name.
func knowsTimeZones() bool {
	_, err := time.LoadLocation("Europe/Berlin")
	return err == nil
}

// checkSchedule says what is wrong with a schedule, such as "*/5 8-18 * * mon-fri" or @daily.
func checkSchedule(schedule string) error {
	if strings.HasPrefix(schedule, "@") {
		if every, ok := strings.CutPrefix(schedule, "@every "); ok {
			_, err := time.ParseDuration(every)
			return err
		}
		if slices.Contains(
			[]string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"},
			schedule,
		) {
			return nil
		}
		return fmt.Errorf("unrecognized descriptor: %s", schedule)
	}
	parts := strings.Fields(schedule)
	if len(parts) != len(scheduleFields) {
		return fmt.Errorf("expected exactly %d fields, found %d: %s", len(scheduleFields), len(parts), parts)
	}
	for i, part := range parts {
		for expression := range strings.SplitSeq(part, ",") {
			if err := scheduleFields[i].check(expression); expression != "" && err != nil {
				return err
			}
		}
	}
	return nil
}

// scheduleField is a part of a schedule: the least and the largest number, and the names of numbers.
type scheduleField struct {
	least, most int
	names       []string // the first is that of the least
}

// scheduleFields are minute, hour, day of the month, month and day of the week.
var scheduleFields = []scheduleField{
	{0, 59, nil}, {0, 23, nil}, {1, 31, nil},
	{1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// check judges NUMBER, FIRST-LAST or *, each with /STEP or without.
func (f scheduleField) check(expression string) error {
	parts := strings.Split(expression, "/")
	bounds := strings.Split(parts[0], "-")
	first, last := f.least, f.most
	var err, err2 error
	switch {
	case bounds[0] == "*" || bounds[0] == "?":
	case len(bounds) == 1:
		first, err = f.number(bounds[0])
		last = first
	case len(bounds) == 2:
		first, err = f.number(bounds[0])
		last, err2 = f.number(bounds[1])
	default:
		return fmt.Errorf("too many hyphens: %s", expression)
	}
	if err = cmp.Or(err, err2); err != nil {
		return err
	}
	if len(parts) > 2 {
		return fmt.Errorf("too many slashes: %s", expression)
	}
	if len(parts) == 2 {
		step, err := strconv.Atoi(parts[1])
		if err != nil || step <= 0 {
			return fmt.Errorf("the step of %s is no number above zero", expression)
		}
		if len(bounds) == 1 {
			last = f.most
		}
	}
	if first < f.least || last > f.most || first > last {
		return fmt.Errorf("%s is not between %d and %d", expression, f.least, f.most)
	}
	return nil
}

func (f scheduleField) number(s string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(s)); i >= 0 {
		return f.least + i, nil
	}
	n, err := strconv.Atoi(s)
	if err == nil && n < 0 {
		err = fmt.Errorf("negative number %d", n)
	}
	return n, err
}
