//! Draws the view. Each text is readable without its colour.

use kube::ResourceExt as _;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

use super::view::{Mode, View};
use crate::cluster::objects::{LockObject, QuorumObject};
use crate::output::format::{between, clock, span};
use crate::output::{Tone, shorten};
use crate::show::lock_row::{state, tone};
use crate::show::picture::lanes::Lanes;
use crate::show::picture::{KeyState, Picture, bar, member_state, validity, votes};
use redlock_api::MilliTime;

/// Maximum number of lines of the part about problems.
const TROUBLE_LINES: u16 = 8;
/// Maximum number of lines of the part about quorums.
const QUORUM_LINES: u16 = 6;
/// Number of lines of the part about the selected key.
const DETAIL_LINES: u16 = 9;
/// Width of the bar in the list, in cells.
const BAR: usize = 16;

impl View {
    /// Draws all parts.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, now: MilliTime) {
        let picture = self.picture(now);
        let trouble = self.trouble(&picture);
        let quorums: Vec<_> = picture.quorums.iter().map(|quorum| self.quorum(quorum, now)).collect();
        let height = |lines: usize, most: u16| u16::try_from(lines).unwrap_or(most).min(most);
        let [title, wrong, voting, list, detail, footer] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(height(trouble.len(), TROUBLE_LINES)),
            Constraint::Length(height(quorums.len(), QUORUM_LINES)),
            Constraint::Min(4),
            Constraint::Length(DETAIL_LINES),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.title(&picture), title);
        frame.render_widget(Paragraph::new(trouble), wrong);
        frame.render_widget(Paragraph::new(quorums), voting);
        if let Mode::Explain(from) = self.mode {
            let [all] = Layout::vertical([Constraint::Min(0)]).areas(list.union(detail));
            self.explanation_widget(frame, all, from, now);
        } else {
            self.list(frame, list, &picture);
            if let Some(key) = self.selection(&picture) {
                self.detail(frame, detail, key, now);
            }
        }
        frame.render_widget(self.footer(), footer);
    }

    fn style(&self, tone: Tone) -> Style {
        if !self.colours {
            return if tone == Tone::Title { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        }
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => Style::new().fg(Color::Green),
            Tone::Waiting => Style::new().fg(Color::Yellow),
            Tone::Bad => Style::new().fg(Color::Red),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            Tone::Title => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    fn title(&self, picture: &Picture<'_>) -> Line<'static> {
        let mut text = format!("redlock top  {}  {}  {}", self.place, picture.counts(), clock(picture.now));
        if !self.filter.is_empty() || self.mode == Mode::Filter {
            text += &format!("  filter: {}", self.filter);
        }
        Line::styled(text, self.style(Tone::Title))
    }

    /// The problems, each with its next step.
    fn trouble(&self, picture: &Picture<'_>) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if let Some(outage) = self.lock_outage.as_ref().or(self.quorum_outage.as_ref()) {
            lines.push(Line::styled(format!("!  The view is not current: {outage}"), self.style(Tone::Bad)));
        }
        for trouble in picture.troubles() {
            lines.push(Line::styled(format!("!  {}: {}", trouble.about, trouble.text), self.style(Tone::Bad)));
            lines.push(Line::from(format!("   next: {}", trouble.next)));
        }
        lines
    }

    fn quorum(&self, quorum: &QuorumObject, now: MilliTime) -> Line<'static> {
        let tone = if quorum.all_vote() { Tone::Good } else { Tone::Waiting };
        let mut spans =
            vec![Span::raw(format!("{}  ", quorum.full_name())), Span::styled(votes(quorum), self.style(tone))];
        for member in &quorum.status.members {
            let (mark, text) = member_state(quorum, member, now);
            let tone = match mark {
                "●" => Tone::Good,
                "◐" => Tone::Waiting,
                _ => Tone::Bad,
            };
            spans.push(Span::raw(format!("  {} ", member.name)));
            spans.push(Span::styled(format!("{mark} {text}"), self.style(tone)));
        }
        Line::from(spans)
    }

    fn list(&self, frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>) {
        let width = usize::from(area.width);
        let selected = self.selection(picture).map(|key| key.lock.as_str());
        let at = picture.keys.iter().position(|key| Some(key.lock.as_str()) == selected).unwrap_or(0);
        let heading = "  LOCK                          HOLDER                VALIDITY                     QUEUE  STATE";
        let mut lines = vec![Line::styled(shorten(heading, width), self.style(Tone::Title))];
        let rows = usize::from(area.height.saturating_sub(1)).max(1);
        let first = at.saturating_sub(rows.saturating_sub(1));
        for key in picture.keys.iter().skip(first).take(rows) {
            lines.push(self.row(key, Some(key.lock.as_str()) == selected, picture.now, width));
        }
        if picture.keys.is_empty() {
            let text = if self.is_loaded { format!("  No locks in {}.", self.place) } else { "  Loading ...".into() };
            lines.push(Line::from(text));
        }
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn row(&self, key: &KeyState<'_>, is_selected: bool, now: MilliTime, width: usize) -> Line<'static> {
        let holders: Vec<_> = key.holders.iter().map(|lock| lock.who()).collect();
        let holder = if holders.is_empty() { "-".to_owned() } else { holders.join(",") };
        let left = key.holders.first().and_then(|lock| validity(lock, now));
        let left = left.map_or("-".to_owned(), |left| format!("{} {:>6}", bar(left, BAR), span(left.left)));
        let mark = if is_selected { ">" } else { " " };
        let (lock, holder) = (shorten(&key.lock, 28), shorten(&holder, 20));
        let text = format!("{mark} {lock:<28}  {holder:<20}  {left:<27}  {:<5}  ", key.queue.len());
        let (state, tone) = key.first().map_or((String::new(), Tone::Plain), |lock| (state(lock), tone(lock)));
        let rest = width.saturating_sub(text.chars().count());
        let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Line::from(vec![Span::styled(text, style), Span::styled(shorten(&state, rest), self.style(tone))])
    }

    /// The selected key: its holders, its history and its queue.
    fn detail(&self, frame: &mut Frame<'_>, area: Rect, key: &KeyState<'_>, now: MilliTime) {
        let block = Block::new().borders(Borders::TOP).title(format!(" {} ", key.lock));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let mut lines: Vec<_> = key.holders.iter().take(2).map(|lock| self.holder(lock, now)).collect();
        if let Some(lock) = key.first().filter(|_| key.holders.is_empty()) {
            lines.push(Line::styled(format!("{}  dlock/{}", state(lock), lock.name_any()), self.style(tone(lock))));
        }
        let lanes = Lanes::of(key, now);
        let rows = lanes.text(usize::from(inner.width).saturating_sub(10));
        for (index, row) in rows.into_iter().take(3).enumerate() {
            let name = if index == 0 { "holders" } else { "" };
            lines.push(Line::from(format!("{name:<9} {row}")));
        }
        let reasons = lanes.reasons();
        if !reasons.is_empty() {
            lines.push(Line::from(format!("{:<9} {} (last {})", "ends", reasons.join(" · "), span(lanes.length))));
        }
        lines.push(Line::from(format!("{:<9} {}", format!("queue {}", key.queue.len()), queue(key, now))));
        frame.render_widget(Paragraph::new(lines), inner);
    }

    fn holder(&self, lock: &LockObject, now: MilliTime) -> Line<'static> {
        let status = &lock.status;
        let node = status.holder.as_ref().and_then(|holder| holder.node_name.as_ref());
        let node = node.map(|node| format!(" @{node}")).unwrap_or_default();
        let token = status.fencing_token.map(|token| format!("  token {token}")).unwrap_or_default();
        let since = status.acquired_at.map(|at| format!("  for {}", span(between(at, now)))).unwrap_or_default();
        let renewed = status.renewed_at.filter(|_| lock.valid_until().is_some());
        let renewed = renewed.map(|at| format!("  renewed {} ago", span(between(at, now)))).unwrap_or_default();
        let left = validity(lock, now);
        let left = left.map(|left| format!("  {} {} of {}", bar(left, BAR), span(left.left), span(left.ttl)));
        let head = Span::styled(format!("{} by {}{node}", state(lock), lock.who()), self.style(tone(lock)));
        Line::from(vec![head, Span::raw(format!("{token}{since}{}{renewed}", left.unwrap_or_default()))])
    }

    fn explanation_widget(&self, frame: &mut Frame<'_>, area: Rect, from: u16, now: MilliTime) {
        let block = Block::new().borders(Borders::TOP).title(" explain ");
        let Some(explained) = self.explanation(now) else { return frame.render_widget(block, area) };
        let mut lines = vec![Line::styled(explained.summary.clone(), self.style(Tone::Title)), Line::default()];
        for link in &explained.links {
            let (mark, tone) = link.state.mark();
            for (index, sentence) in link.lines.iter().enumerate() {
                let (mark, about) = if index == 0 { (mark, link.about) } else { ("", "") };
                let head = Span::styled(format!("{mark:<6}"), self.style(tone));
                lines.push(Line::from(vec![head, Span::raw(format!("{about:<10}{sentence}"))]));
            }
        }
        let next = match explained.to_do() {
            Some(next) => format!("To do: {next}"),
            None if explained.has_remedy() => String::new(),
            None => "There is nothing to do.".to_owned(),
        };
        lines.extend([Line::default(), Line::styled(next, self.style(Tone::Title))]);
        let text = Paragraph::new(lines).wrap(Wrap { trim: false }).scroll((from, 0)).block(block);
        frame.render_widget(text, area);
    }

    fn footer(&self) -> Line<'static> {
        let text = match &self.mode {
            Mode::Confirm((namespace, name)) => {
                format!("Ask the holder of {namespace}/{name} to step down? y: yes, any other key: no")
            }
            Mode::Filter => "Type a part of a lock or a holder. Enter: keep it, Esc: clear it".into(),
            Mode::Explain(_) => "Up, Down: scroll, any other key: back".into(),
            Mode::Browse => match &self.notice {
                Some(notice) => notice.clone(),
                None => "q quit  / filter  e explain  s step down  Up, Down select".into(),
            },
        };
        Line::styled(text, self.style(Tone::Title))
    }
}

/// The first waiters of the queue, with their priorities and waits.
fn queue(key: &KeyState<'_>, now: MilliTime) -> String {
    let waiter = |(index, lock): (usize, &&LockObject)| {
        let priority = if lock.spec.priority == 0 { String::new() } else { format!("p{}, ", lock.spec.priority) };
        let wait = lock.created().map(|created| span(between(created, now))).unwrap_or_default();
        format!("{} {} ({priority}{wait})", index + 1, lock.who())
    };
    key.queue.iter().enumerate().take(8).map(waiter).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::super::view::tests::{press, view};
    use super::*;
    use crate::cluster::objects::fake::now;

    fn drawn(view: &View, width: u16, height: u16) -> (String, bool) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame, now())).unwrap();
        let buffer = terminal.backend().buffer();
        let is_coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
        let rows = buffer.content().chunks(usize::from(width));
        let rows =
            rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>().trim_end().to_owned());
        (rows.collect::<Vec<_>>().join("\n"), is_coloured)
    }

    #[test]
    fn the_picture_is_readable_without_colour() {
        let (text, is_coloured) = drawn(&view(), 120, 24);
        assert!(!is_coloured);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "redlock top  namespace shop  1 held, 2 waiting, 0 in trouble  12:00:00Z");
        assert!(lines[1].starts_with("!  redlock-system/main: RedisQuorum redlock-system/main: 2 of 3"), "{text}");
        assert_eq!(lines[2], "   next: redlock quorum status -n redlock-system main");
        for expected in ["2 of 3 vote, 2 needed, survives 0", "main-0 ● votes", "main-2 ◐ fenced 12s (Restarted)"] {
            assert!(lines[3].contains(expected), "{expected}: {text}");
        }
        for expected in [
            "> shop/reindex                  a                     [##############--]   8.2s",
            "Held by a  token 42  for 60s  [##############--] 8.2s of 10s  renewed 2.0s ago",
            "holders   |a=====",
            "queue 1   1 b (60m00s)",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.ends_with("q quit  / filter  e explain  s step down  Up, Down select"), "{text}");
    }

    #[test]
    fn colours_are_used_on_request_and_a_small_terminal_is_no_error() {
        let mut view = view();
        view.colours = true;
        assert!(drawn(&view, 120, 24).1);
        for (width, height) in [(1, 1), (20, 5), (80, 10)] {
            drawn(&view, width, height);
        }
    }

    #[test]
    fn each_mode_describes_its_keys() {
        let mut view = view();
        press(&mut view, KeyCode::Char('s'));
        assert!(drawn(&view, 120, 24).0.ends_with("Ask the holder of shop/a to step down? y: yes, any other key: no"));
        press(&mut view, KeyCode::Char('n'));
        press(&mut view, KeyCode::Char('e'));
        let text = drawn(&view, 120, 24).0;
        assert!(
            text.contains("shop/reindex is held by \"a\" with token 42") && text.contains("There is nothing to do."),
            "{text}"
        );
        press(&mut view, KeyCode::Esc);
        press(&mut view, KeyCode::Char('/'));
        press(&mut view, KeyCode::Char('z'));
        let text = drawn(&view, 120, 24).0;
        assert!(text.contains("filter: z") && text.contains("No locks in namespace shop."), "{text}");
        for (lock_outage, quorum_outage) in [(Some("no answer".into()), None), (None, Some("no answer".into()))] {
            (view.lock_outage, view.quorum_outage) = (lock_outage, quorum_outage);
            assert!(drawn(&view, 120, 24).0.contains("!  The view is not current: no answer"));
        }
    }
}
