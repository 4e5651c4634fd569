package reconciletest

import "strings"

// kindsCorpus is about what is special of kinds whose controllers would act on them.
var kindsCorpus = []conversation{
	{"nodes", []step{
		post("nodes", "$NS-n", `"status":{"phase":"Running"},"spec":{"unschedulable":true}`),
		merge("nodes/NS-n", `{"spec":{"unschedulable":true},"status":{"phase":"Pending"}}`),
		merge("nodes/NS-n/status", `{"status":{"phase":"Pending"},"metadata":{"labels":{"x":"y"}}}`),
		del("nodes/NS-n", ``)}},
	{"Deployment with a strategy", []step{
		post("deploy", "a", deployment(`"strategy":{"type":"Recreate"}`)),
		post("deploy", "b", deployment(`"strategy":{"type":"Recreate","rollingUpdate":{"maxSurge":1}}`)),
		post("deploy", "c", deployment(`"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":0}}`)),
		post("deploy", "c", deployment(`"strategy":{"rollingUpdate":{"maxSurge":"0%","maxUnavailable":0}}`)),
		post("deploy", "c", deployment(`"strategy":{"rollingUpdate":{"maxSurge":"x","maxUnavailable":"101%"}}`)),
		post("deploy", "c", deployment(`"strategy":{"rollingUpdate":{"maxSurge":-1,"maxUnavailable":"-1%"}}`)),
		post("deploy", "c", deployment(`"strategy":{"rollingUpdate":{"maxSurge":"200%","maxUnavailable":3}}`)),
		merge("deploy/c", `{"spec":{"strategy":{"type":"Recreate"}}}`),
		merge("deploy/c", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)}},
	{"Deployment with deadlines", []step{
		post("deploy", "a", deployment(`"minReadySeconds":10,"progressDeadlineSeconds":10`)),
		post("deploy", "a", deployment(`"minReadySeconds":10,"progressDeadlineSeconds":11,"revisionHistoryLimit":0,`+
			`"paused":true`)),
		post("deploy", "b", deployment(`"minReadySeconds":600,"revisionHistoryLimit":-1`)),
		post("deploy", "b", deployment(`"progressDeadlineSeconds":-1`)),
		merge("deploy/a", `{"spec":{"paused":false}}`)}},
	{"Deployment and its selector", []step{
		post("deploy", "a", deployment(``)),
		merge("deploy/a", `{"spec":{"selector":{"matchLabels":{"app":"b"}},`+
			`"template":{"metadata":{"labels":{"app":"b"}}}}}`), merge("deploy/a", `{"spec":{"selector":null}}`),
		merge("deploy/a", `{"spec":{"template":{"spec":{"restartPolicy":"Never"}}}}`)}},
	{"status of a Deployment", []step{
		post("deploy", "a", deployment(``)+`,"status":{"replicas":3}`),
		merge("deploy/a/status", `{"metadata":{"labels":{"x":"y"},"annotations":{"x":"y"}},"spec":{"replicas":7},
			"status":{"observedGeneration":1,"replicas":3,"updatedReplicas":3,"readyReplicas":2,"availableReplicas":1,
			"unavailableReplicas":2,"terminatingReplicas":1,"collisionCount":1,
			"conditions":[{"type":"Available","status":"True","reason":"R","message":"m",
				"lastUpdateTime":"2020-01-01T00:00:00Z","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`),
		merge("deploy/a/status", `{"status":{"collisionCount":0}}`),
		merge("deploy/a/status", `{"status":{"collisionCount":null}}`),
		merge("deploy/a/status", `{"status":{"updatedReplicas":4,"readyReplicas":4,"availableReplicas":5}}`),
		merge("deploy/a/status", `{"status":{"replicas":-1,"unavailableReplicas":-1,"terminatingReplicas":-1,`+
			`"observedGeneration":-1}}`), get("deploy/a/status"), get("deploy/a/scale"),
		strategic("deploy/a/status", `{"status":{"conditions":[{"type":"Progressing","status":"True"}]}}`),
		put("deploy/a", deployment(`"replicas":5`)), put("deploy/a/status", deployment(``)+`,"status":{"replicas":1}`),
		apply("deploy/a/status?fieldManager=me", `"status":{"readyReplicas":1}`)}},

	{"Job", []step{
		post("jobs", "a", job(``)), get("jobs/a"),
		post("jobs", "b", `"spec":{"template":{"metadata":{"labels":{"app":"a"}},"spec":{"restartPolicy":"Never",`+
			`"containers":[{"name":"c","image":"i:1"}]}}}`),
		post("jobs", "c", `"metadata":{"labels":{"x":"y"}},"spec":{"parallelism":3,`+
			`"template":{"metadata":{"labels":{"app":"a"}},"spec":{"restartPolicy":"OnFailure",`+
			`"containers":[{"name":"c","image":"i:1"}]}}}`),
		post("jobs", "d", job(`"completions":2,"backoffLimit":0,"activeDeadlineSeconds":5,`+
			`"ttlSecondsAfterFinished":0,"suspend":true,"podReplacementPolicy":"Failed"`)),
		apply("jobs/e?fieldManager=me", job(``)),
		apply("jobs/f?fieldManager=me", `"spec":{"template":{"metadata":{"labels":{"app":"a"}},`+
			`"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i:1"}]}}}`),
		get("jobs?fieldSelector=status.successful%3D0"), get("jobs?fieldSelector=status.failed%3D0")}},
	{"Job that cannot be", []step{
		post("jobs", "a", `"spec":{}`), post("jobs", "a",
			`"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`),
		post("jobs", "a", job(`"parallelism":-1,"completions":-1,"backoffLimit":-1,"activeDeadlineSeconds":-1,`+
			`"ttlSecondsAfterFinished":-1`)),
		post("jobs", "a", job(`"completionMode":"Indexed"`)),
		post("jobs", "a", job(`"completionMode":"Indexed","parallelism":1`)),
		post("jobs", "a", job(`"backoffLimitPerIndex":1`)), post("jobs", "a", job(`"maxFailedIndexes":1`)),
		post("jobs", "a", job(`"completionMode":"Indexed","completions":2,"maxFailedIndexes":3,`+
			`"backoffLimitPerIndex":1`)), post("jobs", "b",
			job(`"completionMode":"Indexed","completions":2,"maxFailedIndexes":1,"backoffLimitPerIndex":1`)),
		post("jobs", "a", job(`"manualSelector":true`)), post("jobs", "a", job(`"selector":{"matchLabels":{"x":"y"}}`)),
		post("jobs", "a", strings.Replace(job(`"manualSelector":true,"selector":{"matchLabels":{"x":"y"}}`),
			`"template":{`, `"template":{"metadata":{"labels":{"x":"y"}},`, 1)),
		post("jobs", "c", strings.Replace(job(``), `"template":{`,
			`"template":{"metadata":{"labels":{"job-name":"other"}},`, 1)),
		post("jobs", strings.Repeat("x", 63), job(`"completionMode":"Indexed","completions":2`))}},
	{"Job that changes", []step{
		post("jobs", "a", job(``)), merge("jobs/a", `{"spec":{"parallelism":2,"backoffLimit":1,"suspend":true}}`),
		merge("jobs/a", `{"spec":{"completions":2}}`), merge("jobs/a", `{"spec":{"completionMode":"Indexed"}}`),
		strategic("jobs/a", `{"spec":{"template":{"spec":{"containers":[{"name":"c",`+
			`"resources":{"requests":{"cpu":"1"}}}]}}}}`),
		strategic("jobs/a", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"other:1"}]}}}}`),
		merge("jobs/a", `{"spec":{"template":{"metadata":{"labels":{"x":"y"},"annotations":{"x":"y"}},`+
			`"spec":{"nodeSelector":{"x":"y"}}}}}`), merge("jobs/a", `{"spec":{"suspend":false}}`),
		merge("jobs/a", `{"spec":{"template":{"metadata":{"annotations":{"x":"z"}}}}}`),
		merge("jobs/a", `{"spec":{"selector":{"matchLabels":{"x":"y"}}}}`), put("jobs/a", job(``)),
		put("jobs/b", job(``)),
		post("jobs", "i", job(`"completionMode":"Indexed","completions":2,"parallelism":2,"backoffLimitPerIndex":1`)),
		merge("jobs/i", `{"spec":{"completions":3}}`), merge("jobs/i", `{"spec":{"completions":3,"parallelism":3}}`),
		merge("jobs/i", `{"spec":{"backoffLimitPerIndex":2}}`)}},
	{"status of a Job", []step{
		post("jobs", "a", job(``)+`,"status":{"active":1}`),
		merge("jobs/a/status", `{"status":{"active":1,"ready":1,"startTime":"2020-01-01T00:00:00Z","terminating":0,`+
			`"uncountedTerminatedPods":{"succeeded":["u"]}}}`),
		merge("jobs/a/status", `{"status":{"ready":2}}`),
		merge("jobs/a/status", `{"status":{"startTime":"2020-01-02T00:00:00Z"}}`),
		merge("jobs/a/status", `{"status":{"uncountedTerminatedPods":{"failed":["u",""]}}}`),
		merge("jobs/a/status", `{"status":{"active":-1,"succeeded":-1,"failed":-1,"ready":-1,"terminating":-1}}`),
		merge("jobs/a/status", `{"status":{"conditions":[{"type":"Complete","status":"True"}]}}`),
		merge("jobs/a/status", `{"status":{"failed":2,"succeeded":1}}`),
		merge("jobs/a/status", `{"status":{"failed":1,"succeeded":0}}`),
		merge("jobs/a/status", `{"status":{"completionTime":"2020-01-03T00:00:00Z"}}`),
		merge("jobs/a/status", `{"status":{"active":0,"ready":0,"uncountedTerminatedPods":null,`+
			`"completionTime":"2019-01-03T00:00:00Z","conditions":[{"type":"SuccessCriteriaMet","status":"True"},`+
			`{"type":"Complete","status":"True"}]}}`),
		merge("jobs/a/status", `{"status":{"active":0,"ready":0,"uncountedTerminatedPods":null,`+
			`"completionTime":"2020-01-03T00:00:00Z","conditions":[{"type":"SuccessCriteriaMet","status":"True"},`+
			`{"type":"Complete","status":"True"}]}}`),
		merge("jobs/a/status", `{"status":{"conditions":[]}}`), merge("jobs/a/status", `{"status":{"active":1}}`),
		merge("jobs/a/status", `{"status":{"terminating":1}}`),
		merge("jobs/a/status", `{"status":{"completionTime":"2020-01-04T00:00:00Z"}}`),
		merge("jobs/a/status", `{"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"},`+
			`{"type":"Complete","status":"True"},{"type":"Failed","status":"True"},{"type":"FailureTarget",`+
			`"status":"True"}]}}`),
		merge("jobs/a/status", `{"metadata":{"labels":{"x":"y"}},"spec":{"suspend":true}}`),
		post("jobs", "f", job(``)), merge("jobs/f/status",
			`{"status":{"startTime":"2020-01-01T00:00:00Z","conditions":[{"type":"Failed","status":"True"}]}}`),
		merge("jobs/f/status", `{"status":{"startTime":"2020-01-01T00:00:00Z","conditions":[{"type":"FailureTarget",`+
			`"status":"True"},{"type":"Failed","status":"True","reason":"R",`+
			`"lastProbeTime":"2020-01-01T00:00:00Z"}]}}`),
		merge("jobs/f", `{"metadata":{"labels":{"x":"y"}}}`), get("jobs?fieldSelector=status.successful%3D1"),
		watching("w", "jobs?fieldSelector=status.successful%3D1&resourceVersion={{a.rv1}}"), events("w", 1)}},
	{"Job that is deleted", []step{
		post("jobs", "a", job(``)), post("jobs", "b", job(``)), post("jobs", "c", job(``)), post("jobs", "d", job(``)),
		del("jobs/a?dryRun=All", ``), del("jobs/a", ``), del("jobs/a", ``),
		del("jobs/b", `{"propagationPolicy":"Background"}`), del("jobs/c", `{"propagationPolicy":"Foreground"}`),
		del("jobs/d?propagationPolicy=Orphan", ``), get("jobs"), del("jobs/a", `{"orphanDependents":false}`),
		del("jobs", ``)}},
	{"CronJob", []step{
		post("cj", "a", cronJob(`"schedule":"*/5 * * * *"`)),
		post("cj", "b", cronJob(`"schedule":"@daily","timeZone":"Europe/Berlin","concurrencyPolicy":"Forbid",`+
			`"startingDeadlineSeconds":1,"suspend":true,"successfulJobsHistoryLimit":0,"failedJobsHistoryLimit":0`)),
		merge("cj/a", `{"spec":{"suspend":true}}`), merge("cj/a", `{"metadata":{"labels":{"x":"y"}}}`),
		merge("cj/a/status", `{"spec":{"suspend":false},"status":{"lastScheduleTime":"2020-01-01T00:00:00Z",`+
			`"lastSuccessfulTime":"2020-01-01T00:00:00Z","active":[{"apiVersion":"batch/v1","kind":"Job",`+
			`"namespace":"$NS","name":"j","uid":"u"}]}}`),
		strategic("cj/a", `{"spec":{"jobTemplate":{"spec":{"backoffLimit":1,`+
			`"template":{"spec":{"containers":[{"name":"d","image":"d:1"}]}}}}}}`),
		put("cj/a", cronJob(`"schedule":"0 0 1 jan sun"`)), get("cj?fieldSelector=metadata.name%3Da"),
		get("cj?fieldSelector=spec.suspend%3Dtrue"),
		apply("cj/c?fieldManager=me", cronJob(`"schedule":"@hourly"`)), del("cj/a", ``), del("cj", ``)}},
	{"CronJob that cannot be", []step{
		post("cj", "a", cronJob(``)), post("cj", "a", cronJob(`"schedule":"TZ=UTC * * * * *"`)),
		post("cj", "a", cronJob(`"schedule":"* * * * *","timeZone":""`)),
		post("cj", "a", cronJob(`"schedule":"* * * * *","timeZone":"Mars/Phobos"`)),
		post("cj", "a", cronJob(`"schedule":"* * * * *","timeZone":"local"`)),
		post("cj", "a", cronJob(`"schedule":"x","startingDeadlineSeconds":-1,"successfulJobsHistoryLimit":-1,`+
			`"failedJobsHistoryLimit":-1`)), post("cj", strings.Repeat("x", 53), cronJob(`"schedule":"* * * * *"`)),
		post("cj", "a", strings.Replace(cronJob(`"schedule":"* * * * *"`), `"template":{`,
			`"selector":{"matchLabels":{"x":"y"}},"manualSelector":true,"parallelism":-1,"template":{`, 1)),
		post("cj", "a", `"spec":{"schedule":"* * * * *",`+
			`"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Always"}}}}}`)}},
	{"schedules", schedules()},

	{"HorizontalPodAutoscaler", []step{
		post("hpa", "a", autoscaler(``)), merge("hpa/a", `{"spec":{"minReplicas":2,"maxReplicas":4}}`),
		merge("hpa/a", `{"spec":{"minReplicas":5}}`),
		merge("hpa/a", `{"spec":{"behavior":{"scaleUp":{"stabilizationWindowSeconds":5}}}}`),
		merge("hpa/a", `{"spec":{"behavior":{"scaleDown":{"selectPolicy":"Disabled","tolerance":"50m",`+
			`"policies":[{"type":"Pods","value":1,"periodSeconds":60}]}}}}`),
		merge("hpa/a", `{"spec":{"behavior":null}}`),
		merge("hpa/a/status", `{"spec":{"minReplicas":9},"status":{"currentReplicas":1,"desiredReplicas":2,
			"observedGeneration":1,"lastScaleTime":"2020-01-01T00:00:00Z","conditions":[{"type":"AbleToScale",
			"status":"True","observedGeneration":1}],
			"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":5,
				"averageValue":"1m"}}}]}}`),
		merge("hpa/a/status", `{"status":{"currentReplicas":-1,"desiredReplicas":-1,`+
			`"conditions":[{"type":"AbleToScale","status":"True","observedGeneration":-1}]}}`),
		put("hpa/a", autoscaler(``)), get("hpa?fieldSelector=metadata.name%3Da"),
		apply("hpa/b?fieldManager=me", autoscaler(
			`"minReplicas":0,"metrics":[{"type":"External","external":{"metric":{"name":"m"},`+
				`"target":{"type":"Value","value":"1"}}}]`)), del("hpa/a", ``)}},
	{"HorizontalPodAutoscaler that cannot be", []step{
		post("hpa", "x", `"spec":{}`), post("hpa", "x",
			`"spec":{"maxReplicas":-1,"minReplicas":-1,"scaleTargetRef":{"kind":"a/b","name":"..",`+
				`"apiVersion":"a/b/c"}}`), post("hpa", "x",
			`"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"Deployment","name":"a","apiVersion":"v1"}}`),
		post("hpa", "r", `"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"ReplicationController","name":"a",`+
			`"apiVersion":"v1"}}`), post("hpa", "x", autoscaler(`"minReplicas":0`)),
		post("hpa", "x", autoscaler(`"metrics":[{}]`)), post("hpa", "x", autoscaler(`"metrics":[{"type":"Odd"}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"Resource"}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"Resource","resource":{"name":"","target":{}}}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"Resource","resource":{"name":"cpu",`+
			`"target":{"type":"Utilization","averageUtilization":0,"averageValue":"0"}}}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"Pods","resource":{"name":"cpu",`+
			`"target":{"type":"Utilization","averageUtilization":1}},"pods":{"metric":{"name":""},`+
			`"target":{"type":"Odd","value":"-1"}}}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"Object","object":{"describedObject":{"kind":"","name":"",`+
			`"apiVersion":"a/b/c"},"metric":{"name":"a/b"},"target":{"type":"Value"}}}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"External","external":{"metric":{"name":"a"},`+
			`"target":{"type":"Value","value":"1","averageValue":"1"}}}]`)),
		post("hpa", "x", autoscaler(`"metrics":[{"type":"ContainerResource","containerResource":{"name":"cpu",`+
			`"container":"C","target":{"type":"Utilization"}}}]`)),
		post("hpa", "x", autoscaler(`"behavior":{"scaleUp":{"stabilizationWindowSeconds":3601,"tolerance":"-1",`+
			`"policies":[{"type":"Pods","value":0,"periodSeconds":1801}]},`+
			`"scaleDown":{"stabilizationWindowSeconds":-1,"policies":[]}}`))}},

	{"PersistentVolumeClaim", []step{
		post("pvc", "a", claim(``)), post("pvc", "b",
			claim(`"storageClassName":"","volumeMode":"Block","volumeName":"v","selector":{"matchLabels":{"x":"y"}}`)+
				`,"status":{"phase":"Bound"}`), get("pvc/a"), get("pvc?fieldSelector=metadata.name%3Da"),
		get("pvc?fieldSelector=name%3Da"),
		merge("pvc/a", `{"spec":{"volumeName":"v"}}`), merge("pvc/a", `{"spec":{"volumeName":"w"}}`),
		merge("pvc/a", `{"spec":{"storageClassName":"c"}}`), merge("pvc/a", `{"spec":{"storageClassName":"d"}}`),
		merge("pvc/a", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`),
		merge("pvc/a", `{"spec":{"accessModes":["ReadWriteMany"],"volumeMode":"Block"}}`),
		merge("pvc/a/status", `{"spec":{"volumeName":"x"},"status":{"phase":"Bound","accessModes":["ReadWriteOnce"],`+
			`"capacity":{"storage":"1Gi"},"conditions":[{"type":"Resizing","status":"True"}]}}`),
		merge("pvc/a", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`),
		merge("pvc/a", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`),
		merge("pvc/a", `{"spec":{"resources":{"requests":{"storage":"1500Mi"}}}}`),
		merge("pvc/a", `{"spec":{"resources":{"requests":null}}}`),
		merge("pvc/a/status", `{"status":{"capacity":{"storage":"-1"}}}`), put("pvc/a", claim(``)),
		put("pvc/c", claim(``)), apply("pvc/d?fieldManager=me", claim(``)), del("pvc/a", ``), del("pvc/a", ``),
		merge("pvc/a", `{"metadata":{"finalizers":null}}`), get("pvc/a"), del("pvc/b?dryRun=All", ``)}},
	{"PersistentVolumeClaim that cannot be", []step{
		post("pvc", "a", `"spec":{}`), post("pvc", "a",
			`"spec":{"accessModes":["Odd","ReadWriteOncePod","ReadWriteOnce"],`+
				`"resources":{"requests":{"storage":"0"}}}`),
		post("pvc", "a", `"spec":{"accessModes":["ReadWriteOncePod"],"resources":{"limits":{"storage":"1"}},`+
			`"storageClassName":"A b"}`),
		post("pvc", "a", claim(`"selector":{"matchExpressions":[{"key":"a","operator":"Odd"}]}`))}},

	{"Service", []step{
		post("svc", "a", service(`"ports":[{"port":80}]`)), get("svc/a"),
		post("svc", "b", service(`"clusterIP":"None","publishNotReadyAddresses":true,"ports":[{"name":"client",`+
			`"port":2379,"targetPort":"client"},{"name":"peer","port":2380,"protocol":"UDP","appProtocol":"a/b"}]`)),
		post("svc", "c", service(`"clusterIP":"None"`)), post("svc", "d", service(`"ports":[]`)),
		post("svc", "d", `"spec":{"ports":[{"port":1}]}`),
		apply("svc/e?fieldManager=me", service(`"ports":[{"port":80}]`)),
		apply("svc/e?fieldManager=me", service(`"ports":[{"port":80,"targetPort":8080}]`)),
		apply("svc/e?fieldManager=you", service(`"ports":[{"port":81,"name":"b"}]`)),
		put("svc/f", service(`"ports":[{"port":80}]`)), put("svc/f", service(`"ports":[{"port":81}]`)),
		post("svc", "g", service(`"ports":[{"port":80,"name":"A b"},{"port":80},{"port":0,"targetPort":70000},`+
			`{"port":-1,"targetPort":"a b c"},{"port":1,"name":"x","appProtocol":"/"},{"port":2,"name":"x"}]`)),
		post("svc", "g", `"spec":{"selector":{"a b":"c"},"ports":[{"port":1}]}`),
		merge("svc/a", `{"spec":{"internalTrafficPolicy":"Local","selector":{"x":"y"},"ports":[{"port":81}]}}`),
		merge("svc/a", `{"spec":{"clusterIP":"None"}}`), merge("svc/a", `{"spec":{"clusterIP":null}}`),
		merge("svc/a", `{"spec":{"clusterIPs":null,"ipFamilies":null,"ipFamilyPolicy":null}}`),
		merge("svc/b", `{"spec":{"clusterIP":""}}`), merge("svc/b", `{"spec":{"clusterIPs":null}}`),
		merge("svc/a", `{"status":{"conditions":[{"type":"A","status":"True","reason":"R","message":"",`+
			`"lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`),
		merge("svc/a/status", `{"spec":{"ports":[{"port":7}]},"status":{"conditions":[{"type":"A","status":"True",`+
			`"reason":"R","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`),
		apply("svc/a/status?fieldManager=me", `"spec":{"ports":[{"port":7}]},"status":{"conditions":[{"type":"B",`+
			`"status":"True","reason":"R","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}`),
		get("svc?fieldSelector=spec.clusterIP%3DNone"), get("svc?fieldSelector=spec.type%3DClusterIP"),
		get("svc?fieldSelector=spec.x%3Dy"), get("svc/a/scale"), del("svc/a?dryRun=All", ``), del("svc/a", ``),
		del("svc", ``)}},
	{"PodDisruptionBudget", []step{
		post("pdb", "a", `"spec":{"minAvailable":1,"selector":{"matchLabels":{"x":"y"}}}`),
		post("pdb", "b", `"spec":{"maxUnavailable":"50%","unhealthyPodEvictionPolicy":"AlwaysAllow"},`+
			`"status":{"expectedPods":1}`), post("pdb", "c", `"spec":{}`),
		post("pdb", "d", `"spec":{"minAvailable":"101%","maxUnavailable":-1,"selector":{"matchLabels":{"x y":"z"}}}`),
		post("pdb", "D_d", `"spec":{"minAvailable":-1}`), put("pdb/a", `"spec":{"minAvailable":2}`),
		put("pdb/a", `"metadata":{"resourceVersion":"{{a.rv}}"},"spec":{"minAvailable":2,`+
			`"selector":{"matchLabels":{"x":"z"}}}`),
		merge("pdb/a/status", `{"spec":{"minAvailable":9},"status":{"observedGeneration":2,"disruptionsAllowed":1,`+
			`"currentHealthy":2,"desiredHealthy":1,"expectedPods":2,"disruptedPods":{"p":"2020-01-01T00:00:00Z"},`+
			`"conditions":[{"type":"DisruptionAllowed","status":"True","reason":"Enough","message":"",`+
			`"lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`),
		merge("pdb/a/status", `{"status":{"disruptionsAllowed":-1,"currentHealthy":-1,"desiredHealthy":-1,`+
			`"expectedPods":-1,"conditions":[{"type":"","status":"Odd","reason":""}]}}`), get("pdb/a/status"),
		apply("pdb/e?fieldManager=me", `"spec":{"minAvailable":1}`), del("pdb/a", ``)}},

	{"ResourceQuota", []step{
		post("quotas", "a", `"spec":{"hard":{"pods":"3","requests.cpu":"1500m","memory":1073741824,"limits.cpu":"2"}}`),
		post("quotas", "b", `"spec":{"hard":{"cpu":"0.00001","memory":"1Gi"}}`),
		post("quotas", "c", `"spec":{"hard":{"pods":"1.5"}}`), post("quotas", "c", `"spec":{"hard":{"memory":"-1"}}`),
		post("quotas", "c", `"spec":{"hard":{"memory":"much"}}`), post("quotas", "D_d", `"spec":{}`),
		post("quotas", "e", ``), put("quotas/f", `"spec":{"hard":{"pods":"3"}}`),
		apply("quotas/g?fieldManager=me", `"spec":{"hard":{"pods":"3"}}`),
		apply("quotas/g?fieldManager=you", `"spec":{"hard":{"cpu":"3"}}`),
		apply("quotas/g?fieldManager=me", `"spec":{"hard":{"memory":"3Gi"}}`),
		merge("quotas/a", `{"spec":{"hard":{"pods":null,"cpu":"2"}}}`),
		put("quotas/a", `"spec":{"hard":{"pods":"4"}}`), get("quotas/a"), get("quotas"), get("quotas/a/status"),
		get("quotas?fieldSelector=spec.hard%3Dx"), del("quotas/a?dryRun=All", ``), del("quotas/a", ``),
		del("quotas", ``)}},
	{"LimitRange", []step{
		post("limits", "a", `"spec":{"limits":[{"type":"Container","default":{"cpu":"1","memory":"1Gi"},`+
			`"defaultRequest":{"cpu":"100m"}}]}`),
		post("limits", "b", `"spec":{"limits":[{"type":"Container","defaultRequest":{"cpu":"0.00001"}}]}`),
		post("limits", "c", `"spec":{"limits":[{"type":"Container","default":{"cpu":"1"},`+
			`"defaultRequest":{"cpu":"2"}}]}`),
		post("limits", "c", `"spec":{"limits":[{"type":"Container"},{"type":"Container"}]}`),
		post("limits", "c", `"spec":{"limits":[{"type":"Container","default":{"cpu":"-1"}}]}`),
		post("limits", "d", `"spec":{"limits":[]}`), post("limits", "e", `"spec":{}`),
		post("limits", "D_d", `"spec":{}`),
		put("limits/f", `"spec":{"limits":[{"type":"Container","default":{"memory":"1Gi"}}]}`),
		apply("limits/g?fieldManager=me", `"spec":{"limits":[{"type":"Container","default":{"cpu":"1"}}]}`),
		merge("limits/a", `{"spec":{"limits":[{"type":"Container","default":{"cpu":"3"}}]}}`),
		strategic("limits/a", `{"spec":{"limits":[{"type":"Container","default":{"memory":"2Gi"}}]}}`),
		get("limits/a"), get("limits/a/status"), get("limits"), del("limits/a", ``), del("limits", ``)}},
	{"NetworkPolicy", []step{
		post("netpol", "a", `"spec":{"podSelector":{},"ingress":[{"from":[{"namespaceSelector":{"matchLabels":`+
			`{"x":"y"}}},{"podSelector":{},"namespaceSelector":{}}],"ports":[{"port":80},{"port":"web",`+
			`"protocol":"UDP"}]}]}`),
		post("netpol", "b", `"spec":{"podSelector":{"matchLabels":{"x":"y"}},"egress":[{}]}`),
		post("netpol", "c", `"spec":{"policyTypes":["Egress"]}`),
		post("netpol", "d", `"spec":{"ingress":[{"from":[{}]}]}`),
		post("netpol", "d", `"spec":{"podSelector":{"matchLabels":{"x y":"z z"}},"ingress":[{"from":[{"podSelector":`+
			`{"matchExpressions":[{"key":"a","operator":"In"}]}}],"ports":[{"port":0},{"port":"x_y"}]}]}`),
		post("netpol", "d", `"spec":{"policyTypes":["Ingress","Egress","Ingress"]}`), post("netpol", "d", ``),
		put("netpol/e", `"spec":{"podSelector":{}}`), put("netpol/a", `"spec":{"podSelector":{}}`),
		put("netpol/a", `"metadata":{"labels":{"x":"y"}},"spec":{"podSelector":{}}`),
		apply("netpol/f?fieldManager=me", `"spec":{"podSelector":{},"policyTypes":["Ingress"],"ingress":[{}]}`),
		apply("netpol/f?fieldManager=you&force=true", `"spec":{"ingress":[{"ports":[{"port":1}]}]}`),
		merge("netpol/a", `{"spec":{"ingress":[{"ports":[{"port":443}]}]}}`), get("netpol/a"), get("netpol/a/status"),
		get("netpol"), del("netpol/a", ``), del("netpol", ``)}},
	{"RoleBinding", []step{
		post("bindings", "a", `"roleRef":{"kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"u"},`+
			`{"kind":"Group","name":"g"},{"kind":"ServiceAccount","name":"s","namespace":"$NS"}]`),
		post("bindings", "b", `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"none"}`),
		post("bindings", "c", `"roleRef":{"kind":"Odd","name":""}`), post("bindings", "c", ``),
		post("bindings", "c", `"roleRef":{"apiGroup":"x","kind":"Role","name":"a/b"},"subjects":[{"kind":"Odd"},`+
			`{"kind":"User","name":"","apiGroup":"x"},{"kind":"ServiceAccount","name":"S s","apiGroup":"x"}]`),
		merge("bindings/a", `{"roleRef":{"name":"edit"}}`), merge("bindings/a", `{"roleRef":{"kind":"Role"}}`),
		merge("bindings/a", `{"subjects":[{"kind":"User","name":"v"}]}`), merge("bindings/a", `{"subjects":null}`),
		put("bindings/d", `"roleRef":{"kind":"ClusterRole","name":"view"}`),
		put("bindings/a", `"roleRef":{"kind":"ClusterRole","name":"view"}`),
		apply("bindings/e?fieldManager=me", `"roleRef":{"kind":"ClusterRole","name":"view"},`+
			`"subjects":[{"kind":"User","name":"u"}]`),
		apply("bindings/e?fieldManager=me", `"roleRef":{"kind":"ClusterRole","name":"edit"}`),
		apply("bindings/e?fieldManager=you", `"subjects":[{"kind":"User","name":"v"}]`),
		get("bindings/a"), get("bindings/a/status"), get("bindings"), del("bindings/a", ``), del("bindings", ``)}},

	{"volumes and mounts of a template", []step{
		post("rs", "a", template(`"volumes":[{"name":"e"},{"name":"m","emptyDir":{"medium":"Memory",`+
			`"sizeLimit":"1Gi"}},{"name":"c","configMap":{"name":"x"}},{"name":"s","secret":{"secretName":"x",`+
			`"defaultMode":256,"items":[{"key":"k","path":"p","mode":256}]}},{"name":"p",`+
			`"persistentVolumeClaim":{"claimName":"x","readOnly":true}},{"name":"d","downwardAPI":{"items":[`+
			`{"path":"l","fieldRef":{"fieldPath":"metadata.labels"}},{"path":"a","mode":256,`+
			`"fieldRef":{"fieldPath":"metadata.annotations['example.com/Own']"}}]}}]`,
			`"volumeMounts":[{"name":"e","mountPath":"/e"},{"name":"s","mountPath":"/s","readOnly":true}]`)),
		post("rs", "b", template(`"volumes":[{"name":""},{"name":"V"},{"name":"e"},{"name":"e"},{"name":"c",`+
			`"configMap":{}},{"name":"s","secret":{"defaultMode":512,"items":[{"key":"","path":"","mode":-1}]}},`+
			`{"name":"p","persistentVolumeClaim":{}},{"name":"d","downwardAPI":{"defaultMode":-1,"items":[{"path":"",`+
			`"mode":512},{"path":"f","fieldRef":{"fieldPath":""}}]}},{"name":"two","emptyDir":{"sizeLimit":"-1"},`+
			`"configMap":{"name":"x"},"secret":{"secretName":"x"}}]`,
			`"volumeMounts":[{"name":"e","mountPath":"/e"},{"name":"none","mountPath":"/e"},{"name":"",`+
				`"mountPath":""},{"name":"c","mountPath":"/c"}]`))}},
	{"environment of a template", []step{
		post("rs", "a", template(``, `"env":[{"name":"A","value":"1"},{"name":"B",
			"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"C","valueFrom":{"secretKeyRef":{"name":"s",
			"key":"k"}}},{"name":"D","valueFrom":{"configMapKeyRef":{"name":"c","key":"k","optional":true}}}],
			"envFrom":[{"prefix":"P_","configMapRef":{"name":"c"}},{"secretRef":{"name":"s","optional":true}}],
				"workingDir":"/w","stdin":true,"tty":true`)),
		post("rs", "b", template(``, `"env":[{"name":"A","value":"1",
			"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"B","valueFrom":{}},{"name":"C",
			"valueFrom":{"secretKeyRef":{"name":"","key":""}}},{"name":"D","valueFrom":{"configMapKeyRef":{"name":"C c",
			"key":"k k"}}},
			{"name":"E","valueFrom":{"fieldRef":{"fieldPath":"status.phase"}}},{"name":"F",
				"valueFrom":{"fieldRef":{"fieldPath":""}}},{"name":"G",
				"valueFrom":{"fieldRef":{"fieldPath":"metadata.uid"},
				"secretKeyRef":{"name":"s","key":"k"}}}],"envFrom":[{},{"configMapRef":{},"secretRef":{}}]`))}},
	{"resources, probes and security of a template", []step{
		post("rs", "a", template(`"serviceAccountName":"sa","nodeSelector":{"x":"y"},`+
			`"securityContext":{"runAsUser":1,"runAsNonRoot":true,"fsGroup":2,`+
			`"seccompProfile":{"type":"RuntimeDefault"}}`,
			`"resources":{"requests":{"cpu":"0.0001","memory":"1Gi"},"limits":{"cpu":"1","memory":"2Gi"}},
				"livenessProbe":{"httpGet":{"port":"http"}},"readinessProbe":{"exec":{"command":["x"]},
				"successThreshold":2},"startupProbe":{"tcpSocket":{"port":80},"initialDelaySeconds":1},
			"securityContext":{"runAsUser":0,"readOnlyRootFilesystem":true,"allowPrivilegeEscalation":false,
				"capabilities":{"drop":["ALL"]}},"ports":[{"name":"http","containerPort":80}]`)),
		post("rs", "b", template(`"nodeSelector":{"x y":"z z"}`, `"resources":{"requests":{"cpu":"2","memory":"-1"},
			"limits":{"cpu":"1"}},"livenessProbe":{"successThreshold":2},"readinessProbe":{"exec":{},
			"httpGet":{"port":0}},"startupProbe":{"tcpSocket":{"port":"A B"},"periodSeconds":-1,"failureThreshold":-1,
			"timeoutSeconds":-1,"initialDelaySeconds":-1},
			"ports":[{"name":"A b","containerPort":80}]`)),
		post("deploy", "d", deployment(`"template":{"metadata":{"labels":{"app":"a"}},
				"spec":{"serviceAccount":"old","restartPolicy":"OnFailure",
				"containers":[{"name":"c","image":"i"}]}}`))}},
	{"quality of service of pods", []step{
		post("pods", "a", `"spec":{"schedulerName":"none","containers":[{"name":"c","image":"i:1",`+
			`"resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}`),
		post("pods", "b", `"spec":{"schedulerName":"none","containers":[{"name":"c","image":"i:1",`+
			`"resources":{"requests":{"cpu":"1"}}}]}`),
		post("pods", "c", `"spec":{"schedulerName":"none","containers":[{"name":"c","image":"i:1",`+
			`"resources":{"limits":{"cpu":"1","memory":"1Gi"}}},{"name":"d","image":"i:1"}]}`),
		post("pods", "d", `"spec":{"schedulerName":"none","restartPolicy":"Never","containers":[{"name":"c",`+
			`"image":"i:1","command":["x"],"env":[{"name":"A",`+
			`"valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],`+
			`"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}}]}`),
		merge("pods/a/status", `{"status":{"phase":"Running"}}`),
		strategic("pods/a", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"2"}}}]}}`)}},
}

// deployment is the inside of a Deployment of one container.
func deployment(spec string) string {
	return `"spec":` + merged(`{"selector":{"matchLabels":{"app":"a"}},`+
		`"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`, spec)
}

func job(spec string) string {
	return `"spec":` + merged(`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c",`+
		`"image":"i:1"}]}}`, spec)
}

func cronJob(spec string) string { return `"spec":` + merged(`{"jobTemplate":{`+job(``)+`}`, spec) }

func autoscaler(spec string) string {
	return `"spec":` + merged(`{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment",`+
		`"name":"a"}`, spec)
}

func claim(spec string) string {
	return `"spec":` + merged(`{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}`, spec)
}

// template is the inside of a ReplicaSet whose pods have these fields, and whose container has those.
func template(pod, container string) string {
	return `"spec":{"replicas":0,"selector":{"matchLabels":{"app":"a"}},` +
		`"template":{"metadata":{"labels":{"app":"a"}},"spec":` +
		merged(`{"containers":[`+merged(`{"name":"c","image":"i:1"`, container)+`]`, pod) + `}}`
}

// merged closes an object to which more fields may belong; of a field that is there twice the last one counts.
func merged(object, more string) string {
	if more != "" {
		object += "," + more
	}
	return object + "}"
}

// schedules are requests with one schedule each.
func schedules() (steps []step) {
	for _, s := range []string{
		"* * * * *", "? * * * *", "59 23 31 12 6", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *",
		"* * * 13 *", "* * * * 7", "-1 * * * *", "1-5 * * * *", "5-1 * * * *", "1-2-3 * * * *",
		"*/5 * * * *", "*/0 * * * *", "*/x * * * *", "1/2/3 * * * *", "5/10 * * * *", "1,2,3 * * * *", "1,,3 * * * *",
		", * * * *", "* * * JAN-dec SUN", "* * * foo *", "* * * *", "* * * * * *", "", " * * * * * ", "@yearly",
		"@annually", "@monthly", "@weekly",
		"@daily", "@midnight", "@hourly", "@every 1h", "@every x", "@reboot", "@DAILY", "*-5 * * * *", "1- * * * *",
		"+1 * * * *", "01 * * * *",
	} {
		steps = append(steps, post("cj?dryRun=All", "a", cronJob(`"schedule":"`+s+`"`)))
	}
	return steps
}

func service(spec string) string { return `"spec":{"selector":{"app":"a"},` + spec + `}` }
