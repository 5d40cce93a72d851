#!/bin/sh
# Works while this instance leads. It needs curl and jq. Its argument is the agent: http://127.0.0.1:4040
agent=$1 instance=none
ask() { curl -s -m 2 --noproxy '*' -H 'X-Redlock: 1' -X "$1" "$agent$2"; }
uptime_ms() { read -r up _ </proc/uptime && echo "${up%.*}${up#*.}0"; }
while :; do
  # Read before the request, so that a delay only shortens the validity. Only differences of this clock are valid, because it can start with
  # the container.
  asked=$(uptime_ms)
  answer=$(ask GET "/leader?instance=$instance")
  valid=$(echo "$answer" | jq -r '.validForMs // 0')
  if [ "$(echo "$answer" | jq -r .reason)" = NotServed ]; then
    # The application or the agent has just started.
    instance=$(ask POST /register | jq -r .instance)
  elif [ "$((asked + ${valid:-0}))" -gt "$(uptime_ms)" ]; then
    # The work must end before the deadline, and pass the token to the resources that it changes.
    echo "works with token $(echo "$answer" | jq -r .fencingToken)"
  fi
  sleep 0.2
done
