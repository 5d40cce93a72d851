package redlock

// SetServiceAccountToken makes a test's process one of a pod.
func SetServiceAccountToken(path string) { serviceAccountToken = path }
